/* Lines about data: documents kept and dropped, conversations, lengths, epochs. */
#include "train/data_report.h"

#include "train/run.h"

#include "base/sys.h"
#include "base/tell.h"
#include "base/units.h"
#include "data/stream.h"
#include "settings/curriculum.h"

#include <stdlib.h>

/* ---- any corpus ---- */

/* Prints "3 messages" if there are any. */
static void print_left_out(int64_t n, const char *one, const char *several, int *any, FILE *f)
{
    char a[32];
    if (n > 0)
        fprintf(f, "%s%s %s", (*any)++ ? ", " : "; the template leaves out ", units_format_count(n, a), n == 1 ? one : several);
}

void data_print_chats(const struct chat_counts *n, FILE *f)
{
    char a[32], b[32], c[32];
    int any = 0;
    if (n->conversations == 0)
        return;
    fprintf(f, "chats: %s conversation%s in %s sample%s", units_format_count(n->conversations, a),
            n->conversations == 1 ? "" : "s", units_format_count(n->samples, b), n->samples == 1 ? "" : "s");
    if (n->split)
        fprintf(f, " (%s cut turn by turn, because the template writes earlier turns otherwise)",
                units_format_count(n->split, c));
    fprintf(f, "; %s turns without their reasoning (reasoning_dropped)", units_format_count(n->reasoning_dropped, a));
    fprintf(f, ", %s without a token that ends them (unended)", units_format_count(n->unended, b));
    print_left_out(n->messages_dropped, "message", "messages", &any, f);
    print_left_out(n->calls_dropped, "message's calls of tools", "messages' calls of tools", &any, f);
    print_left_out(n->contents_dropped, "assistant's text beside calls or reasoning",
                   "assistants' texts beside calls or reasoning", &any, f);
    print_left_out(n->tools_dropped, "conversation's tools", "conversations' tools", &any, f);
    if (n->empty)
        fprintf(f, "; %s trained turn%s nothing (empty)", units_format_count(n->empty, a), n->empty == 1 ? " says" : "s say");
    if (n->other_roles)
        fprintf(f, "; %s message%s of another role than system, developer, user, assistant and tool",
                units_format_count(n->other_roles, a), n->other_roles == 1 ? " is" : "s are");
    if (n->untrained)
        fprintf(
            f,
            "; %s turn%s of assistants %s wholly or partly not trained, as the template writes them elsewhere or outside of {%% generation %%} (untrained)",
            units_format_count(n->untrained, a), n->untrained == 1 ? "" : "s", n->untrained == 1 ? "is" : "are");
    if (n->otherwise)
        fprintf(f, "; %s trained turn%s elsewhere than a generation prompt ends (otherwise)", units_format_count(n->otherwise, a),
                n->otherwise == 1 ? " begins" : "s begin");
    if (n->arguments)
        fprintf(f, "; arguments of %s call%s JSON text and given to the template as object%s",
                units_format_count(n->arguments, a), n->arguments == 1 ? " were" : "s were", n->arguments == 1 ? "" : "s");
    fputc('\n', f);
    if (n->typed)
        fprintf(
            f,
            "remark: %s message%s the text of special tokens or of the template itself, which is read as letters: if the rows were rendered before, give "
            "them without it, or whole as rows of \"text\" (ltrain data shows such letters as \\x3c|...|>)\n",
            units_format_count(n->typed, a), n->typed == 1 ? " has" : "s have");
}

void data_print_repaired(int64_t n, const char *path, FILE *f)
{
    if (n > 0)
        fprintf(
            f,
            "remark: %lld broken characters in the text (it is no valid UTF-8) are read as U+FFFD, many of them in %s: a text in Latin-1 "
            "becomes UTF-8 by iconv -f WINDOWS-1252 -t UTF-8\n",
            (long long)n, path);
}

void data_print_packing(int64_t seq_len, const struct packing_report *r, FILE *f)
{
    char a[32], b[32], c[32], d[32];
    int64_t sequences = r->train_sequences + r->eval_sequences;
    fprintf(f, "sequences of %s: %lld for training and %lld held out, %.1f%% full; %s tokens kept, %s dropped, %s truncated, ",
            units_format_count(seq_len, a), (long long)r->train_sequences, (long long)r->eval_sequences,
            100.0 * (double)r->tokens_kept / (double)(sequences * seq_len), units_format_count(r->tokens_kept, b),
            units_format_count(r->tokens_dropped, c), units_format_count(r->tokens_truncated, d));
    fprintf(f, "%s without a target; %lld document%s split, %lld dropped, %lld truncated\n",
            units_format_count(r->tokens_untrained, a), (long long)r->documents_split, r->documents_split == 1 ? "" : "s",
            (long long)r->documents_dropped, (long long)r->documents_truncated);
}

void data_print_packed(const struct corpus *c, FILE *f)
{
    const struct corpus_report *r = corpus_get_report(c);
    struct packing_report all = r->packed;
    all.train_sequences = r->train_sequences;
    all.eval_sequences = r->eval_sequences;
    data_print_packing(corpus_get_length(c), &all, f);
}

void data_print_remarks(const struct corpus *c, FILE *f)
{
    char a[32];
    const struct corpus_report *r = corpus_get_report(c);
    if (r->left_out)
        fprintf(f, "data: --data-exclude leaves out %s file%s\n", units_format_count(r->left_out, a),
                r->left_out == 1 ? "" : "s");
    if (r->empty)
        fprintf(f, "remark: %s empty %s left out: files without a byte, or rows without a token\n",
                units_format_count(r->empty, a), r->empty == 1 ? "document is" : "documents are");
    if (r->json_rows == 1)
        fprintf(
            f,
            "remark: %s holds rows and is read as a text, as the other files of its directory: rows are read of files named .jsonl\n",
            r->json_path);
    if (r->json_rows > 1)
        fprintf(
            f,
            "remark: %s files, as %s, hold rows and are read as texts, as the other files of their directories: rows are read of files named .jsonl\n",
            units_format_count(r->json_rows, a), r->json_path);
    if (r->foreign_token)
        fprintf(
            f, "remark: the chat template writes %s, which is no token of the tokenizer: it is read as text, in several tokens\n",
            r->foreign_token);
    if (r->read_twice)
        fprintf(f, "remark: %s is in two sources of --data, and is read by the weights of both\n", r->read_twice);
    if (r->evaluated_too)
        fprintf(f, "remark: %s is in --data and in --eval-data: what is evaluated is trained, too\n", r->evaluated_too);
}

/* ---- a run's corpus ---- */

/* Prints the end of a line: the way that text became tokens. */
static void print_tokenizer(const struct run *r, const struct corpus_report *d)
{
    const struct stream *first = corpus_get_source(r->inputs.corpus, 0).documents;
    if (!r->inputs.tokenizer[0] && stream_has_ids(first)) {
        tell("ids below %lld, as they are\n", (long long)stream_ids(first));
        return;
    }
    if (!r->inputs.tokenizer[0]) {
        tell("text as bytes%s\n", r->s->tokenizer || model_is_preset(r->s->model) ? "" : ": the model has no tokenizer");
        return;
    }
    tell("tokens of %s, %.2f bytes each%s\n", r->inputs.tokenizer, (double)d->bytes / (double)d->tokens,
         d->cached ? ", kept from an earlier run" : "");
    data_print_repaired(d->repaired, d->repaired_path, tell_stream());
}

void run_print_data(const struct run *r)
{
    char a[32], b[32], c[32];
    const struct settings *s = r->s;
    if (!r->inputs.corpus) {
        tell("data: the program gives the sequences\n");
        return;
    }
    const struct corpus_report *d = corpus_get_report(r->inputs.corpus);
    const struct packing_report *p = &d->packed;
    double full = (double)p->train_tokens / (double)(d->train_sequences * run_length(r));
    tell("data: %lld document%s (%lld split, %lld dropped, %lld truncated), %s tokens kept, %s dropped, %s truncated",
         (long long)d->documents, d->documents == 1 ? "" : "s", (long long)p->documents_split, (long long)p->documents_dropped,
         (long long)p->documents_truncated, units_format_count(p->tokens_kept, a), units_format_count(p->tokens_dropped, b),
         units_format_count(p->tokens_truncated, c));
    if (p->tokens_untrained)
        tell(", %s without a target", units_format_count(p->tokens_untrained, a));
    tell("; %lld training and %lld held-out sequences, %.1f%% full; unigram entropy %.4f nats/token; ",
         (long long)d->train_sequences, (long long)d->eval_sequences, 100 * full, d->unigram_entropy);
    print_tokenizer(r, d);
    data_print_chats(&d->chats, tell_stream());
    data_print_remarks(r->inputs.corpus, tell_stream());
    if (full < 0.8)
        tell(
            "remark: %.0f%% of what is computed is padding, as documents do not fill sequences: a shorter --seq-len, or --packing "
            "concat, wastes less\n",
            100 * (1 - full));
    if (d->eval_sequences > 0 && s->plan.eval_every > s->plan.steps && !s->plan.eval_before)
        tell("remark: --eval-every %lld is longer than the run of %lld steps: nothing is evaluated\n",
             (long long)s->plan.eval_every, (long long)s->plan.steps);
    if (d->eval_sequences > 0 && s->plan.eval_every == 0 && !s->plan.eval_before)
        tell("remark: what %s gives is never evaluated: --eval-every N or --eval-before says when\n",
             s->eval_data.n > 0 ? "--eval-data" : "--eval-fraction");
    if (d->remembered)
        tell("data: no file was touched since an earlier start, which has read them all\n");
}

enum status run_print_lengths(struct run *r)
{
    if (!r->inputs.corpus)
        return OK;
    const int64_t was = corpus_get_length(r->inputs.corpus);
    for (int i = 0; i < r->plans.all.n && r->plans.all.n > 1; i++) {
        const int64_t length = plan_length(r->plans.all.plan[i]);
        TRY(train_say_length(r->s, length, corpus_cut(r->inputs.corpus, length)));
        tell("data: ");
        data_print_packed(r->inputs.corpus, tell_stream());
    }
    return corpus_cut(r->inputs.corpus, was);
}

/* ---- epochs ---- */

/* Coming steps [first, end) and the number of the sequence that the first of them takes. */
struct taking {
    int64_t first, end;
    uint64_t cursor;
    double *epochs; /* [sources]: epochs of each source are added */
};

/* Formats [first, end) as "step 3" or "steps 3 to 5". */
static const char *format_steps(int64_t first, int64_t end, char text[64])
{
    if (end - first == 1)
        snprintf(text, 64, "step %lld", (long long)end);
    else
        snprintf(text, 64, "steps %lld to %lld", (long long)first + 1, (long long)end);
    return text;
}

/* Adds and prints the epochs of steps of one length, as the corpus is cut now. */
static void take(const struct run *r, struct taking *t, int64_t seq_len)
{
    char length[32], tokens[32], sequences[32], steps[64];
    const struct corpus_report *d = corpus_get_report(r->inputs.corpus);
    const uint64_t taken = (uint64_t)(t->end - t->first) * (uint64_t)r->s->plan.batch;
    const double mean = (double)taken / (double)d->train_sequences;
    double read = 0;
    for (int i = 0; i < corpus_sources(r->inputs.corpus); i++) {
        const double epochs =
            corpus_epochs(r->inputs.corpus, i, t->cursor + taken) - corpus_epochs(r->inputs.corpus, i, t->cursor);
        t->epochs[i] += epochs;
        read += epochs * (double)corpus_get_source(r->inputs.corpus, i).packed->train_tokens;
    }
    t->cursor += taken;
    if (curriculum_stretches(r->s) > 1)
        tell("data: %s take%s %s tokens in sequences of %s, of which there are %s to train (%.3g epochs)\n",
             format_steps(t->first, t->end, steps), t->end - t->first == 1 ? "s" : "",
             units_format_count((int64_t)(read + 0.5), tokens), units_format_count(seq_len, length),
             units_format_count(d->train_sequences, sequences), mean);
}

/* Prints sources by weight and their epochs in the coming steps. One source with sequences of one length gets a short line. */
static void print_sources(const struct run *r, const double *epochs)
{
    const struct settings *s = r->s;
    double all = 0;
    int n = corpus_sources(r->inputs.corpus);
    char steps[64];
    format_steps(r->progress.at.step, s->plan.steps, steps);
    if (r->progress.at.step == 0)
        snprintf(steps, sizeof steps, "%lld step%s", (long long)s->plan.steps, s->plan.steps == 1 ? "" : "s");
    if (n == 1 && curriculum_stretches(s) == 1)
        tell("data: %.3g epochs in %s\n", epochs[0], steps);
    for (int i = 0; i < n; i++)
        all += corpus_get_source(r->inputs.corpus, i).weight;
    for (int i = 0; i < n && n > 1; i++) {
        struct corpus_source x = corpus_get_source(r->inputs.corpus, i);
        char tokens[32];
        tell("data: %s: %.4g%% of the tokens; %s tokens in %lld sequences, %.3g epochs in %s\n", x.name, 100 * x.weight / all,
             units_format_count(x.packed->train_tokens, tokens), (long long)x.packed->train_sequences, epochs[i], steps);
    }
}

enum status run_print_epochs(struct run *r)
{
    if (!r->inputs.corpus)
        return OK;
    const int64_t was = corpus_get_length(r->inputs.corpus);
    struct taking t = {.cursor = r->progress.at.cursor};
    enum status st = OK;
    if (r->progress.at.step >= r->s->plan.steps)
        return OK;
    t.epochs = sys_calloc((size_t)corpus_sources(r->inputs.corpus), sizeof *t.epochs);
    if (!t.epochs)
        return status_fail(ERR_NOMEM, "out of memory: epochs of %d sources", corpus_sources(r->inputs.corpus));
    for (int i = 0; i < curriculum_stretches(r->s) && st == OK; i++) {
        const struct plan_stretch *x = &r->plans.all.stretches[i];
        t.first = max_i64(x->first, r->progress.at.step);
        t.end = x->end;
        if (t.end <= t.first)
            continue;
        st = corpus_cut(r->inputs.corpus, x->seq_len);
        if (st == OK)
            take(r, &t, x->seq_len);
    }
    if (st == OK)
        st = corpus_cut(r->inputs.corpus, was);
    if (st == OK)
        print_sources(r, t.epochs);
    free(t.epochs);
    return st;
}
