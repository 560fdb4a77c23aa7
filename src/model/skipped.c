#include "model/skipped.h"

#include "base/sys.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>
#include <stdlib.h>
#include <string.h>

struct skipped {
    char *text; /* lines, each ended by a zero */
    struct pattern {
        const char *text;
        pcre2_code *code;
    } * pattern;
    int n;
};

static enum status compile(struct pattern *p)
{
    int error;
    PCRE2_SIZE at;
    char *whole = NULL, why[128] = "";
    if (asprintf(&whole, "(?:%s)(?:(?<=\\.)|(?=\\.|$))", p->text) < 0)
        return status_fail(ERR_NOMEM, "out of memory: llm_int8_skip_modules");
    p->code = pcre2_compile((PCRE2_SPTR)whole, PCRE2_ZERO_TERMINATED, PCRE2_ANCHORED | PCRE2_UTF, &error, &at, NULL);
    free(whole);
    if (p->code)
        return OK;
    pcre2_get_error_message(error, (PCRE2_UCHAR *)why, sizeof why);
    return status_fail(ERR_INVALID, "llm_int8_skip_modules of config.json: %.100s is no regular expression: %s", p->text, why);
}

static enum status compile_all(struct skipped *s, int lines)
{
    char *rest = s->text;
    s->pattern = sys_calloc((size_t)lines + 1, sizeof *s->pattern);
    if (!s->pattern)
        return status_fail(ERR_NOMEM, "out of memory: llm_int8_skip_modules");
    for (char *line; (line = strsep(&rest, "\n"));) {
        s->pattern[s->n].text = line;
        TRY(compile(&s->pattern[s->n++]));
    }
    return OK;
}

enum status skipped_create(const char *patterns, struct skipped **out)
{
    struct skipped *s = sys_calloc(1, sizeof *s);
    int lines = 1;
    for (const char *p = patterns; *p; p++)
        lines += *p == '\n';
    if (!s || (patterns[0] && !(s->text = strdup(patterns)))) {
        free(s);
        return status_fail(ERR_NOMEM, "out of memory: llm_int8_skip_modules");
    }
    enum status st = patterns[0] ? compile_all(s, lines) : OK;
    if (st == OK)
        *out = s;
    else
        skipped_destroy(s);
    return st;
}

void skipped_destroy(struct skipped *s)
{
    if (!s)
        return;
    for (int i = 0; i < s->n; i++)
        pcre2_code_free(s->pattern[i].code);
    free(s->pattern);
    free(s->text);
    free(s);
}

int skipped_has(const struct skipped *s, const char *module)
{
    const size_t n = strlen(module);
    int found = 0;
    for (int i = 0; i < s->n && !found; i++) {
        const size_t m = strlen(s->pattern[i].text);
        pcre2_match_data *data = pcre2_match_data_create(1, NULL);
        found = (m <= n && strcmp(module + n - m, s->pattern[i].text) == 0) ||
                (data && pcre2_match(s->pattern[i].code, (PCRE2_SPTR)module, n, 0, 0, data, NULL) >= 0);
        pcre2_match_data_free(data);
    }
    return found;
}
