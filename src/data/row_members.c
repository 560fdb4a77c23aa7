/* Finding out whether a member of a row is read, by rows that have nothing else beside what they need. */
#include "data/row_members.h"

#include "chat/chat.h"
#include "data/id_row.h"

#include <stdlib.h>
#include <string.h>

/* Values, of which a reader refuses at least one in each member that it looks at. */
static const char values[] =
    "[true, false, 0, 1, 7, \"false\", \"true\", \"a text that no message says\", [0.5, 0.5], [1, 1], [0, 1], "
    "[1, 0], [1], {\"train\": false, \"skip\": true}]";

/* Rows that are read without a complaint; of texts those of any column. */
static const char *const rows[] = {
    [LINES_TEXT] = "{}",
    [LINES_CHATS] = "{\"messages\": [{\"role\": \"user\", \"content\": \"Q\"}, {\"role\": \"assistant\", \"content\": \"A\"}]}",
    [LINES_IDS] = "{\"input_ids\": [5, 6]}"};

static enum status read_row(enum lines_kind kind, const json_t *row)
{
    enum { IDS = 8 };
    enum status st;
    if (kind == LINES_CHATS) {
        struct chat_conversation *c = NULL;
        st = chat_from_json(row, "", 1, &c);
        chat_destroy(c);
    } else if (kind == LINES_IDS) {
        struct ids ids = {0};
        st = id_row_add(&(struct lines_place){"", 1}, row, IDS, &ids);
        free(ids.id);
    } else {
        st = chat_check_row(row, CHAT_ROW_TEXT, "", 1);
    }
    return st;
}

int row_members_are_read(enum lines_kind kind, const char *column, const char *key)
{
    size_t i;
    const json_t *value;
    if (kind == LINES_TEXT && strcmp(key, column ? column : "text") == 0)
        return 1;
    json_t *row = json_loads(rows[kind], 0, NULL), *all = json_loads(values, 0, NULL);
    int is_read = !row || !all || json_object_get(row, key);
    json_array_foreach(all, i, value)
    {
        if (is_read)
            break;
        is_read = json_object_set(row, key, (json_t *)value) != 0 || read_row(kind, row) != OK;
    }
    json_decref(row);
    json_decref(all);
    return is_read;
}
