/* A curriculum: parsing and printing its text, and the sequence length of each step. */
#include "settings/curriculum.h"

#include "base/num.h"
#include "base/units.h"

#include <stdlib.h>
#include <string.h>

#define LIKE "8k@1000,64k@500,420k (a length, @ and its number of steps; the last one without)"

static enum status parse_stretch(const char *where, char *text, int is_last, int64_t min, int64_t max, struct stretch *out)
{
    char *at = strchr(text, '@');
    out->steps = 0;
    if (is_last && at)
        return status_fail(ERR_INVALID, "%s: the last length, %s, goes on until --steps: write it without @", where, text);
    if (!is_last && !at)
        return status_fail(ERR_INVALID, "%s: '%s' is not like " LIKE "; numbers of several digits have no commas here", where,
                           text);
    if (at) {
        *at = 0;
        TRY(units_parse_steps(where, at + 1, &out->steps));
        if (out->steps < 1 || out->steps > SETTINGS_MOST_STEPS)
            return status_fail(ERR_INVALID, "%s: %s@%s: a length has at least 1 step and at most %d", where, text, at + 1,
                               SETTINGS_MOST_STEPS);
    }
    TRY(units_parse_count(where, text, &out->seq_len));
    if (out->seq_len < min || out->seq_len > max)
        return status_fail(ERR_INVALID, "%s: %s is out of range, it must be at least %lld and at most %lld", where, text,
                           (long long)min, (long long)max);
    return OK;
}

enum status curriculum_parse(const char *where, const char *text, int64_t min, int64_t max, struct curriculum *out)
{
    struct curriculum c = {.n = 0};
    char *copy = strdup(text), *rest = copy;
    enum status st = copy ? OK : status_fail(ERR_NOMEM, "%s: out of memory", where);
    while (st == OK && rest) {
        char *item = strsep(&rest, ",");
        item += strspn(item, " ");
        if (c.n == CURRICULUM_MOST)
            st = status_fail(ERR_INVALID, "%s: more than %d lengths", where, CURRICULUM_MOST);
        else
            st = parse_stretch(where, item, rest == NULL, min, max, &c.at[c.n++]);
    }
    free(copy);
    if (st == OK)
        *out = c;
    return st;
}

void curriculum_print(const struct curriculum *c, FILE *f)
{
    for (int i = 0; i < c->n; i++)
        fprintf(f, i + 1 < c->n ? "%lld@%lld," : "%lld", (long long)c->at[i].seq_len, (long long)c->at[i].steps);
}

int64_t curriculum_longest(const struct curriculum *c)
{
    int64_t longest = 0;
    for (int i = 0; i < c->n; i++)
        longest = max_i64(longest, c->at[i].seq_len);
    return longest;
}

int curriculum_stretches(const struct settings *s)
{
    return s->curriculum.n > 0 ? s->curriculum.n : 1;
}

int64_t curriculum_length(const struct settings *s, int stretch)
{
    return s->curriculum.n > 0 ? s->curriculum.at[stretch].seq_len : s->plan.seq_len;
}

int64_t curriculum_first(const struct settings *s, int stretch)
{
    int64_t step = 0;
    for (int i = 0; i < stretch; i++)
        step += s->curriculum.at[i].steps;
    return min_i64(step, s->plan.steps);
}

int64_t curriculum_end(const struct settings *s, int stretch)
{
    return stretch + 1 < curriculum_stretches(s) ? curriculum_first(s, stretch + 1) : s->plan.steps;
}

int curriculum_at(const struct settings *s, int64_t step)
{
    int stretch = 0;
    while (stretch + 1 < curriculum_stretches(s) && step >= curriculum_first(s, stretch + 1))
        stretch++;
    return stretch;
}

enum status curriculum_check(const struct settings *s)
{
    int64_t before = 0;
    for (int i = 0; i + 1 < s->curriculum.n; i++)
        before += s->curriculum.at[i].steps;
    if (before < s->plan.steps)
        return OK;
    return status_fail(ERR_INVALID,
                       "seq-len: the lengths before the last one take %lld steps, and the run has %lld: give --steps more",
                       (long long)before, (long long)s->plan.steps);
}
