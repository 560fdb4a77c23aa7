/* Tests rows of token ids as other trainers write them: trained ids, several documents in one row, names of files with rows. */
#include "data/row_members.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

enum { IDS = 100 };

/* Writes the ids of a row, in parentheses those that are not trained; or the error. */
static void read_row(const char *more, char out[400])
{
    char row[400];
    struct ids ids = {.n = 0};
    int n = 0;
    snprintf(row, sizeof row, "{\"input_ids\": [1, 2, 3, 4]%s}", more);
    if (lines_read_ids("f", 3, row, strlen(row), IDS, &ids) != OK)
        snprintf(out, 400, "%s", status_message());
    else
        for (size_t i = 0; i < ids.n; i++)
            n += snprintf(out + n, 400 - (size_t)n, ids.id[i] < IDS ? "%d " : "(%d) ", ids.id[i] % IDS);
    free(ids.id);
}

/* Checks that the members that are not read of a .parquet change nothing. */
static void expect_selected(const char *more, const char *want)
{
    char row[400], got[400] = "", *selected;
    const char *key;
    void *next;
    json_t *value;
    snprintf(row, sizeof row, "{%s}", more + strspn(more, ", "));
    json_t *object = json_loads(row, 0, NULL);
    json_object_foreach_safe(object, next, key, value)
    {
        if (!row_members_are_read(LINES_IDS, NULL, key))
            json_object_del(object, key);
    }
    selected = json_dumps(object, 0);
    snprintf(row, sizeof row, "%s%.*s", json_object_size(object) ? ", " : "", (int)strlen(selected) - 2, selected + 1);
    read_row(row, got);
    if (strcmp(got, want) != 0)
        fail_msg("%s gives %s, and %s %s", more, want, row, got);
    free(selected);
    json_decref(object);
}

static void expect(const char *more, const char *want)
{
    char got[400] = "";
    read_row(more, got);
    expect_selected(more, got);
    if (want[0] == '1' || want[0] == '(' ? strcmp(got, want) != 0 : !strstr(got, want) || strncmp(got, "f:3: ", 5) != 0)
        fail_msg("%s gives %s, expected %s", more, got, want);
}

static void test_trained(void **state)
{
    (void)state;
    static const char *const masks[] = {
        "mask",       "loss_mask",    "assistant_masks", "assistant_mask",        "completion_mask", "response_mask",
        "train_mask", "loss_weights", "loss_scale",      "assistant_tokens_mask", "token_weights"};
    char more[200];
    for (size_t i = 0; i < sizeof masks / sizeof *masks; i++) {
        snprintf(more, sizeof more, ", \"%s\": [0, false, 1, true]", masks[i]);
        expect(more, "(1) (2) 3 4 ");
        snprintf(more, sizeof more, ", \"%s\": [0.0, 1.0, 0.0, 1.0], \"labels\": [1, -100, 3, 4]", masks[i]);
        expect(more, "(1) (2) (3) 4 ");
        snprintf(more, sizeof more, ", \"%s\": [0, 0.5, 1, 1]", masks[i]);
        expect(more, "is neither 0 nor 1");
        snprintf(more, sizeof more, ", \"%s\": [1, 1, 1]", masks[i]);
        expect(more, "is no list of 4 numbers");
    }
    expect(
        ", \"special_tokens_mask\": [1, 0, 0, 1], \"token_type_ids\": [0, 0, 0, 0], \"weight\": 1, \"length\": 4, \"loss_mask\": null",
        "1 2 3 4 ");
    static const char *const unknown[] = {"\"prompt_mask\": [1, 1, 0, 0]",
                                          "\"label\": [1, 2, 3, 4]",
                                          "\"target_ids\": [2, 3, 4, 5]",
                                          "\"shift_labels\": [2, 3, 4, -100]",
                                          "\"advantages\": [0.1, 0.2, 0.3, 0.4]",
                                          "\"prompt_length\": 2",
                                          "\"answer_start_idx\": 2",
                                          "\"completion_start\": 2",
                                          "\"source_len\": 2",
                                          "\"train\": false",
                                          "\"weight\": 0.5",
                                          "\"train_on_input\": true",
                                          "\"loss_mask_b64\": [1]"};
    for (size_t i = 0; i < sizeof unknown / sizeof *unknown; i++) {
        snprintf(more, sizeof more, ", %s", unknown[i]);
        expect(more, "its \"");
    }
}

static void test_packed(void **state)
{
    (void)state;
    static const char *const several[] = {
        "seq_lengths\": [2, 2",        "seq_lens\": [1, 3",        "seqlens\": [1, 3",
        "sequence_lengths\": [2, 2",   "doc_lens\": [2, 2",        "lengths\": [2, 2",
        "position_ids\": [0, 1, 0, 1", "input_pos\": [0, 1, 2, 0", "positions\": [0, 1, 0, 1",
        "pos_ids\": [0, 1, 2, 0",      "cu_seqlens\": [0, 2, 4",   "cu_seq_lens_q\": [0, 2, 4",
        "cu_doc_lens\": [0, 2, 4",     "cu_seqlens\": [2, 4",      "seq_start_id\": [0, 2",
        "document_starts\": [0, 2",    "boundaries\": [0, 2, 4",   "document_ids\": [0, 0, 1, 1",
        "segment_ids\": [1, 1, 2, 2",  "seq_idx\": [0, 0, 1, 1",   "sequence_ids\": [0, 1, 1, 1",
        "sample_ids\": [7, 7, 7, 8"};
    static const char *const one[] = {"seq_lengths\": [4",           "seq_lens\": [4, 0",          "position_ids\": [0, 1, 2, 3",
                                      "cu_seqlens\": [0, 4",         "cu_seqlens\": [0, 4, 4",     "seq_start_id\": [0",
                                      "document_ids\": [5, 5, 5, 5", "segment_ids\": [1, 1, 1, 1", "input_pos\": [0, 1, 2, 3",
                                      "word_ids\": [0, 0, 1, 1",     "pos_ids\": [0, 1, 2, 3",     "pos\": [7, 7"};
    char more[200];
    for (size_t i = 0; i < sizeof several / sizeof *several; i++) {
        snprintf(more, sizeof more, ", \"%s]", several[i]);
        expect(more, "it holds several documents (");
    }
    for (size_t i = 0; i < sizeof one / sizeof *one; i++) {
        snprintf(more, sizeof more, ", \"%s]", one[i]);
        expect(more, "1 2 3 4 ");
    }
    expect(
        ", \"attention_mask\": [1, 1, 1, 0], \"segment_ids\": [1, 1, 1, 0], \"cu_seqlens\": [0, 3, 4], \"position_ids\": [0, 1, 2, 0]",
        "1 2 3 ");
    expect(", \"attention_mask\": [1, 1, 2, 2]", "is neither 0 nor 1");
}

/* Members that no reader looks at are left out of tables. */
static void test_members(void **state)
{
    (void)state;
    static const char *const unread[] = {"id", "url", "embedding", "token_count", "language_score"};
    static const char *const read[][6] = {
        [LINES_TEXT] = {"text", "weight", "train_on_inputs", "metadata", "skip", "completion_mask"},
        [LINES_CHATS] = {"messages", "tools", "system", "history", "images", "chat_template_kwargs"},
        [LINES_IDS] = {"input_ids", "labels", "attention_mask", "position_ids", "cu_seqlens", "prompt_len"}};
    for (enum lines_kind k = LINES_TEXT; k <= LINES_IDS; k++) {
        for (size_t i = 0; i < sizeof unread / sizeof *unread; i++)
            assert_false(row_members_are_read(k, NULL, unread[i]));
        for (size_t i = 0; i < 6; i++)
            if (!row_members_are_read(k, NULL, read[k][i]))
                fail_msg("%s is not read", read[k][i]);
    }
    assert_true(row_members_are_read(LINES_TEXT, "abstract", "abstract"));
    assert_false(row_members_are_read(LINES_TEXT, "abstract", "text") || row_members_are_read(LINES_TEXT, NULL, "messages"));
}

static void test_names(void **state)
{
    (void)state;
    static const char *const rows[] = {"a.jsonl",  "d/a.ndjson", "a.jsonlines", "a.JSONL",
                                       "A.NDJson", "a.ldjson",   "a.jsonl.gz",  "a.NDJSON.zst"};
    static const char *const others[] = {"a.json", "a.txt", "jsonl", ".jsonl", "a.jsonl.txt", "a.jsonl.bak"};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        assert_true(lines_are_in(rows[i]));
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        assert_false(lines_are_in(others[i]));
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_trained), cmocka_unit_test(test_packed),
                                       cmocka_unit_test(test_members), cmocka_unit_test(test_names)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
