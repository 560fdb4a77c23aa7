/* Printing what an evaluation found. */
#include "eval/eval_results.h"

#include "base/num.h"
#include "base/units.h"
#include "eval/heat_map.h"
#include "eval/task_json.h"
#include "train/data_report.h"
#include "train/signals.h"

#include <jansson.h>
#include <math.h>
#include <string.h>
#include <unistd.h>

static int is_partial(const struct result *r)
{
    return r->found.sequences < r->texts.windows;
}

/* Prints the part that a signal left out, if any. */
static void print_end(const struct eval *x)
{
    char done[32], all[32], length[32];
    const struct result *last = &x->result[x->done - 1];
    if (x->done == x->n && !is_partial(last))
        return;
    printf("ended early by %s:", signals_name(x->signal));
    if (is_partial(last))
        printf(" the figures of %s tokens are of %s of %s windows%s", units_format_count(last->length, length),
               units_format_count(last->found.sequences, done), units_format_count(last->texts.windows, all),
               x->done < x->n ? ";" : "");
    for (int i = x->done; i < x->n; i++)
        printf("%s %s", i == x->done ? " not evaluated:" : ",", units_format_count(x->length[i], length));
    putchar('\n');
}

static void print_windows(const struct result *r)
{
    char done[32], all[32], both[80];
    units_format_count(r->texts.windows, all);
    snprintf(both, sizeof both, "%s/%s", units_format_count(r->found.sequences, done), all);
    printf(" %9s", is_partial(r) ? both : all);
}

/* Prints remarks on windows longer than all documents (they show nothing new) or than the model's positions. */
static void print_reach(const struct eval *x)
{
    char a[32];
    int64_t longest = 0;
    const int64_t document = x->result[0].texts.longest;
    for (int i = 0; i < x->done; i++)
        longest = max_i64(longest, x->result[i].length);
    if (longest > document)
        printf("remark: no document has more than %s tokens: in longer windows no prediction sees more\n",
               units_format_count(document, a));
    if (x->positions > 0 && min_i64(longest, document) > x->positions)
        printf("warning: lengths above %s are beyond the positions that the model was made for (--rope stretches them)\n",
               units_format_count(x->positions, a));
}

static void print_losses(const struct eval *x)
{
    char a[32], b[32], c[32];
    const struct result *first = &x->result[0];
    printf("%s: %s document%s, %s tokens", x->model, units_format_count(first->texts.documents, a),
           first->texts.documents == 1 ? "" : "s", units_format_count(first->texts.tokens, b));
    if (first->texts.text_bytes >= 0)
        printf(", %s bytes", units_format_count(first->texts.text_bytes, c));
    putchar('\n');
    data_print_chats(&first->texts.chats, stdout);
    print_reach(x);
    if (x->signal)
        print_end(x);
    if (x->perplexity)
        printf("\n%12s %12s %9s %12s %10s %12s %10s\n", "length", "stride", "windows", "predicted", "loss", "perplexity",
               "bits/byte");
    for (int i = 0; x->perplexity && i < x->done; i++) {
        const struct result *r = &x->result[i];
        printf("%12s %12s", units_format_count(r->length, a), units_format_count(r->stride, b));
        print_windows(r);
        printf(" %12s %10.6f %12.6g %10.6f\n", units_format_count(r->found.targets, c), r->found.loss, exp(r->found.loss),
               r->found.bits_per_byte);
    }
    if (!x->position)
        return;
    printf("\n%-24s", "loss by tokens seen");
    for (int i = 0; i < x->done; i++)
        printf(" %12s", units_format_count(x->result[i].length, a));
    for (int k = 0; k < EVALUATION_BUCKETS; k++) {
        int there = 0;
        for (int i = 0; i < x->done; i++)
            there |= x->result[i].found.seen[k].targets > 0;
        if (!there)
            continue;
        printf("\n%10s to %-10s", units_format_count(1ll << k, a), units_format_count((2ll << k) - 1, b));
        for (int i = 0; i < x->done; i++)
            if (x->result[i].found.seen[k].targets > 0)
                printf(" %12.6f", x->result[i].found.seen[k].loss);
            else
                printf(" %12s", "-");
    }
    putchar('\n');
}

static void print_tables(struct eval *x)
{
    if (eval_has_answers(x) && !x->answers_are_printed) {
        printf("%s\n", x->model);
        heat_map_print(&x->tasks, comm_size(x->comm) == 1 && isatty(STDOUT_FILENO), stdout);
        x->answers_are_printed = 1;
    }
    if (eval_has_answers(x) && x->done > 0)
        putchar('\n');
    if (x->done > 0)
        print_losses(x);
}

static json_t *number(double v)
{
    return isfinite(v) ? json_real(v) : json_null();
}

static json_t *perplexity_object(const struct result *r)
{
    return json_pack("{s:s, s:I, s:I, s:I, s:I, s:I, s:o, s:o, s:I, s:o}", "task", "ppl", "length", (json_int_t)r->length,
                     "stride", (json_int_t)r->stride, "windows", (json_int_t)r->texts.windows, "windows_done",
                     (json_int_t)r->found.sequences, "tokens", (json_int_t)r->found.targets, "loss", number(r->found.loss),
                     "perplexity", number(exp(r->found.loss)), "bytes", (json_int_t)r->found.bytes, "bits_per_byte",
                     number(r->found.bits_per_byte));
}

static json_t *position_object(const struct result *r)
{
    json_t *all = json_array();
    for (int k = 0; k < EVALUATION_BUCKETS; k++)
        if (r->found.seen[k].targets > 0)
            json_array_append_new(all, json_pack("{s:I, s:I, s:I, s:o}", "from", (json_int_t)1 << k, "to",
                                                 ((json_int_t)2 << k) - 1, "tokens", (json_int_t)r->found.seen[k].targets, "loss",
                                                 number(r->found.seen[k].loss)));
    return json_pack("{s:s, s:I, s:I, s:I, s:I, s:o}", "task", "position", "length", (json_int_t)r->length, "stride",
                     (json_int_t)r->stride, "windows", (json_int_t)r->texts.windows, "windows_done",
                     (json_int_t)r->found.sequences, "seen", all);
}

static enum status print_json(const struct eval *x)
{
    const struct windows_report *t = &x->result[0].texts;
    json_t *results = json_array(), *o = json_pack("{s:s}", "model", x->model);
    for (int i = 0; i < x->done; i++) {
        if (x->perplexity)
            json_array_append_new(results, perplexity_object(&x->result[i]));
        if (x->position)
            json_array_append_new(results, position_object(&x->result[i]));
    }
    if (x->done > 0) {
        json_object_set_new(o, "documents", json_integer(t->documents));
        json_object_set_new(o, "tokens", json_integer(t->tokens));
        json_object_set_new(o, "bytes", t->text_bytes >= 0 ? json_integer(t->text_bytes) : json_null());
    }
    if (x->held_out.taken)
        TRY(held_out_add(&x->held_out, o));
    if (x->signal)
        json_object_set_new(o, "ended_by", json_string(signals_name(x->signal)));
    if (eval_has_answers(x))
        task_json_add(&x->tasks, o, results);
    int failed = json_object_set_new(o, "results", results) != 0 ||
                 json_dumpf(o, stdout, JSON_INDENT(2) | JSON_REAL_PRECISION(17)) != 0 || putchar('\n') == EOF;
    json_decref(o);
    return failed ? status_fail(ERR_IO, "cannot write what was found: standard output is full or closed") : OK;
}

enum status eval_print(struct eval *x)
{
    if (x->s->json)
        TRY(print_json(x));
    else
        print_tables(x);
    if (fflush(stdout) != 0 || ferror(stdout))
        return status_fail(ERR_IO, "cannot write what was found: standard output is full or closed");
    return x->s->svg && eval_has_answers(x) ? heat_map_write_svg(&x->tasks, x->model, x->s->svg) : OK;
}
