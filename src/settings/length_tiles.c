/* Recording, in a run's settings, the tiles that a run with a curriculum has chosen. */
#include "settings/curriculum.h"
#include "settings/keys.h"

#define TILES "%lld=%lld/%lld/%lld"

int curriculum_recall_tiles(const struct settings *s, int64_t seq_len, int64_t *rows, int64_t *heads, int64_t *loss)
{
    for (int i = 0; i < s->length_tiles.n; i++) {
        long long of, r, h, l;
        if (sscanf(s->length_tiles.item[i], TILES, &of, &r, &h, &l) != 4 || of != seq_len || r < 1 || h < 1 || l < 1)
            continue;
        *rows = r;
        *heads = h;
        *loss = l;
        return 1;
    }
    return 0;
}

enum status curriculum_note_tiles(struct settings *s, int64_t seq_len, int64_t rows, int64_t heads, int64_t loss)
{
    char text[128];
    int64_t r, h, l;
    if (curriculum_recall_tiles(s, seq_len, &r, &h, &l))
        return OK;
    snprintf(text, sizeof text, TILES, (long long)seq_len, (long long)rows, (long long)heads, (long long)loss);
    return settings_list_add(settings_key_find("length-tiles"), "length-tiles", text, s);
}
