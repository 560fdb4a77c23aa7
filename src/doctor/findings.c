#include "doctor/findings.h"

#include "base/num.h"
#include "base/prose.h"

#include <jansson.h>
#include <stdarg.h>
#include <string.h>

static const char *const names[VERDICTS] = {"ok", "warning", "failure", "unmeasured"};

void findings_add(struct findings *f, enum verdict v, const char *check, const char *cure, const char *format, ...)
{
    va_list arguments;
    if (f->n == FINDINGS)
        return;
    struct finding *x = &f->at[f->n++];
    x->verdict = v;
    snprintf(x->check, sizeof x->check, "%s", check);
    snprintf(x->cure, sizeof x->cure, "%s", cure);
    va_start(arguments, format);
    vsnprintf(x->text, sizeof x->text, format, arguments);
    va_end(arguments);
    f->of[v]++;
}

void findings_print(const struct findings *f, FILE *out)
{
    enum { COLUMN = 24 };
    for (int i = 0; i < f->n; i++) {
        const struct finding *x = &f->at[i];
        prose_print(out, COLUMN, "%-11s %-11s %s%s%s", names[x->verdict], x->check, x->text, x->cure[0] ? ": " : "", x->cure);
    }
    fprintf(out, "doctor: %d ok, %d warning%s, %d failure%s, %d unmeasured\n", f->of[VERDICT_OK], f->of[VERDICT_WARNING],
            f->of[VERDICT_WARNING] == 1 ? "" : "s", f->of[VERDICT_FAILURE], f->of[VERDICT_FAILURE] == 1 ? "" : "s",
            f->of[VERDICT_UNMEASURED]);
}

enum status findings_print_json(const struct findings *f, FILE *out)
{
    json_t *root = json_object(), *checks = json_array();
    for (int i = 0; i < f->n; i++)
        json_array_append_new(checks, json_pack("{s:s, s:s, s:s, s:s}", "check", f->at[i].check, "verdict",
                                                names[f->at[i].verdict], "text", f->at[i].text, "cure", f->at[i].cure));
    json_object_set_new(root, "checks", checks);
    for (int v = 0; v < VERDICTS; v++)
        json_object_set_new(root, names[v], json_integer(f->of[v]));
    const int bad = json_dumpf(root, out, JSON_INDENT(2)) != 0;
    json_decref(root);
    fputc('\n', out);
    return bad ? status_fail(ERR_IO, "doctor: the findings cannot be written as JSON") : OK;
}
