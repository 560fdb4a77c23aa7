#include "eval/eval_tasks.h"

#include "base/clock.h"
#include "base/num.h"
#include "base/sys.h"
#include "base/units.h"
#include "eval/generation.h"
#include "eval/prompts.h"
#include "eval/result_file.h"
#include "eval/sampling.h"
#include "eval/task_gather.h"
#include "eval/task_rows.h"
#include "train/data.h"
#include "train/signals.h"
#include "train/train.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <xxhash.h>

/* Tokens that an answer may have beyond the right answer's, for words around it. */
enum { ROOM = 16 };
/* Bytes of the user's text per token of a length: more than scripts with long words take. A sample depends only on its own
 * length, not on the others. */
enum { BYTES_PER_TOKEN = 16 };

struct job {
    struct settings *s;
    struct comm *comm;
    struct task_results *r;
    struct prompts prompts;
    struct generation generation;
    struct text_buffer text; /* the user's text */
    struct haystack *haystack;
    int64_t haystack_length; /* length in tokens that the haystack was made for */
    struct sampling *x;
    uint8_t *ends;
    int32_t *id; /* [most]: tokens of an answer */
    double began;
    int64_t tokens_done, tokens_all;
};

/* ---- depths and cells ---- */

static enum status add_depth(const char *item, double *out, int *n)
{
    char *end;
    const double x = strtod(item, &end);
    if (end == item || (*end && strcmp(end, "%") != 0) || !(x >= 0 && x <= 100))
        return status_fail(ERR_INVALID, "--depths: %s is not between 0 and 100 (percent of the text)", item);
    for (int i = 0; i < *n; i++)
        if (out[i] == x)
            return status_fail(ERR_INVALID, "--depths: %s is there twice", item);
    if (*n == EVAL_MOST_DEPTHS)
        return status_fail(ERR_INVALID, "--depths: more than %d depths", EVAL_MOST_DEPTHS);
    out[(*n)++] = x;
    return OK;
}

enum status eval_tasks_depths(const struct settings *s, double *out, int *n)
{
    static const double usual[] = {0, 25, 50, 75, 100};
    int64_t count;
    *n = 0;
    if (s->depths.n == 0) {
        memcpy(out, usual, sizeof usual);
        *n = sizeof usual / sizeof *usual;
        return OK;
    }
    if (s->depths.n > 1 || strchr(s->depths.item[0], '%')) {
        for (int i = 0; i < s->depths.n; i++)
            TRY(add_depth(s->depths.item[i], out, n));
        return OK;
    }
    TRY(units_parse_count("--depths", s->depths.item[0], &count));
    if (count < 2 || count > EVAL_MOST_DEPTHS)
        return status_fail(ERR_INVALID,
                           "--depths: %s: a number alone is how many there are, 2 to %d, from 0%% to 100%%; a single depth is "
                           "written as %lld%%",
                           s->depths.item[0], EVAL_MOST_DEPTHS, (long long)min_i64(count, 100));
    while (*n < count) {
        out[*n] = 100.0 * *n / (double)(count - 1);
        ++*n;
    }
    return OK;
}

static enum status make_cells(struct task_results *r)
{
    r->cell = sys_calloc((size_t)r->n_tasks * (size_t)r->n_lengths * (size_t)r->n_depths, sizeof *r->cell);
    if (!r->cell)
        return status_fail(ERR_NOMEM, "out of memory");
    for (int l = 0; l < r->n_lengths; l++)
        for (int t = 0; t < r->n_tasks; t++)
            for (int d = 0; d < (task_has_depth(r->task[t]) ? r->n_depths : 1); d++)
                r->cell[r->n_cells++] = (struct task_cell){
                    .task = r->task[t], .length = r->length[l], .depth = task_has_depth(r->task[t]) ? r->depth[d] : NAN};
    return OK;
}

void eval_tasks_destroy(struct task_results *r)
{
    for (int64_t i = 0; r->answer && i < r->n_answers; i++)
        free(r->answer[i].text);
    free(r->cell);
    free(r->answer);
    free(r->depth);
    free(r->length);
    *r = (struct task_results){.n_cells = 0};
}

/* ---- prompts ---- */

static int64_t room_of(const struct job *j, int64_t answer)
{
    return j->s->max_new_tokens == AUTO ? answer + ROOM : max_i64(j->s->max_new_tokens, answer);
}

static enum status count(void *user, const struct task_sample *s, int64_t *tokens)
{
    struct job *j = user;
    struct ids prompt = {.n = 0}, answer = {.n = 0};
    enum status st = task_rows_encode(&j->prompts, s, &prompt, &answer);
    if (st == OK)
        *tokens = (int64_t)prompt.n + room_of(j, (int64_t)answer.n);
    free(prompt.id);
    free(answer.id);
    return st;
}

static enum status use_length(struct job *j, int64_t length)
{
    const struct text_buffer *t = &j->text;
    size_t n = (size_t)min_i64((int64_t)t->n, length * BYTES_PER_TOKEN);
    if (j->haystack_length == length)
        return OK;
    while (n > 0 && n < t->n && (t->data[n] & 0xc0) == 0x80) /* not within a character */
        n--;
    haystack_destroy(j->haystack);
    j->haystack = NULL;
    TRY(haystack_create((const char *)t->data, n, &j->haystack));
    j->haystack_length = length;
    return OK;
}

static enum status generate(struct job *j, const struct task_cell *c, int64_t number, struct task_sample *out)
{
    TRY(use_length(j, c->length));
    return task_generate(&(struct task_request){.task = c->task,
                                                .tokens = c->length,
                                                .depth = c->depth,
                                                .seed = j->s->seed,
                                                .number = number,
                                                .haystack = j->haystack},
                         &(struct task_counter){count, j}, out);
}

/* Generates the first sample of each task and length before a model is loaded, to find too short lengths and unfit texts. */
static enum status try_generating(struct job *j)
{
    struct task_results *r = j->r;
    for (int i = 0; i < r->n_cells; i++) {
        struct task_sample sample;
        if (i > 0 && r->cell[i].task == r->cell[i - 1].task && r->cell[i].length == r->cell[i - 1].length)
            continue;
        TRY(generate(j, &r->cell[i], 0, &sample));
        r->repeats |= sample.repeats;
        task_sample_destroy(&sample);
    }
    return OK;
}

static enum status open_prompts(struct job *j)
{
    TRY(prompts_open(j->s, &j->prompts));
    if (j->s->chat)
        TRY(prompts_open_chat(j->s, &j->prompts));
    TRY(generation_read(j->s, &j->generation));
    TRY(make_cells(j->r));
    TRY(data_read_text(j->s, task_longest(j->r) * BYTES_PER_TOKEN, &j->text));
    j->r->haystack_bytes = (int64_t)j->text.n;
    return try_generating(j);
}

/* Makes sure that all ranks have the same text, and so make the same samples. */
static enum status compare_texts(struct job *j)
{
    const uint64_t own = j->text.n > 0 ? XXH3_64bits(j->text.data, j->text.n) : 0;
    uint64_t first = own;
    TRY(comm_broadcast(j->comm, 0, &first, sizeof first));
    return comm_agree(
        j->comm,
        own == first ? OK : status_fail(ERR_INVALID, "--data is another text than on rank 0: do all hosts see the same files?"));
}

/* ---- samples as training data ---- */

static enum status write_rows(struct job *j, FILE *f)
{
    for (int i = 0; i < j->r->n_cells; i++)
        for (int64_t k = 0; k < j->r->samples; k++) {
            struct task_sample sample;
            if (atomic_load(signals_first()) != 0)
                return ERR_CANCELLED;
            TRY(generate(j, &j->r->cell[i], k, &sample));
            enum status st =
                task_rows_write(&j->prompts, &j->generation.eos, &sample, &j->r->cell[i], j->s->train_on == TRAIN_ON_ALL, f);
            task_sample_destroy(&sample);
            TRY(st);
        }
    return OK;
}

static enum status write_samples(struct job *j)
{
    const char *path = j->s->write_samples;
    struct result_file file;
    enum status st = result_file_begin(&file, "write-samples", path);
    if (st == OK)
        st = result_file_end(&file, write_rows(j, file.f));
    if (st == OK)
        printf("%s: samples written: %lld\n", path, (long long)task_answers_wanted(j->r));
    const int number = atomic_load(signals_first());
    if (st != ERR_CANCELLED || number == 0)
        return st;
    fprintf(stderr, "ltrain: %s before the last sample: %s is as it was\n", signals_name(number), path);
    return OK;
}

/* ---- answers ---- */

/* Formats a cell as "needle, 8,192 tokens, depth 25%". */
static const char *describe(const struct task_cell *c, char out[128])
{
    char tokens[32], depth[32] = "";
    if (!isnan(c->depth))
        snprintf(depth, sizeof depth, ", depth %g%%", round(10 * c->depth) / 10);
    snprintf(out, 128, "%s, %s tokens%s", task_name(c->task), units_format_count(c->length, tokens), depth);
    return out;
}

static int shows_progress(const struct job *j)
{
    return comm_rank(j->comm) == 0 && isatty(STDERR_FILENO);
}

static void show_progress(const struct job *j, const struct task_cell *c)
{
    char cell[128];
    const double seconds = clock_seconds() - j->began;
    if (!shows_progress(j))
        return;
    fprintf(stderr, "\r\033[K%s: %lld of %lld answers", describe(c, cell), (long long)j->r->n_answers,
            (long long)task_answers_wanted(j->r));
    if (j->tokens_done > 0) {
        const int64_t eta = (int64_t)(seconds * (double)(j->tokens_all - j->tokens_done) / (double)j->tokens_done);
        fprintf(stderr, ", eta %lld:%02lld:%02lld", (long long)(eta / 3600), (long long)(eta / 60 % 60), (long long)(eta % 60));
    }
}

static void erase_progress(const struct job *j)
{
    if (shows_progress(j))
        fputs("\r\033[K", stderr);
}

/* Prints a line for each cell where output is kept and nobody sees the progress. */
static void print_cell(const struct job *j, int number)
{
    const struct task_cell *c = &j->r->cell[number];
    char cell[128];
    double seconds = 0;
    if (j->s->json || (comm_size(j->comm) == 1 && isatty(STDOUT_FILENO))) /* mpiexec gives its ranks a terminal of their own */
        return;
    for (int64_t i = 0; i < j->r->n_answers; i++)
        seconds += j->r->answer[i].cell == number ? j->r->answer[i].seconds : 0;
    erase_progress(j);
    printf("%s: %.0f, %.2f s\n", describe(c, cell), 100 * task_cell_score(c), seconds);
    fflush(stdout);
}

static enum status text_of(const struct job *j, int64_t n, char **out)
{
    struct text_buffer text = {.n = 0}, good = {.n = 0};
    int64_t repaired = 0;
    enum status st = OK;
    if (j->prompts.tokenizer)
        st = tokenizer_decode(j->prompts.tokenizer, j->id, (size_t)n, 0, &text);
    for (int64_t i = 0; !j->prompts.tokenizer && i < n && st == OK; i++)
        st = text_buffer_add(&text, &(uint8_t){(uint8_t)j->id[i]}, 1);
    if (st == OK)
        st = text_repair(text.data, text.n, &good, &repaired);
    struct text_buffer *is = repaired > 0 ? &good : &text;
    if (st == OK)
        st = text_buffer_add(is, "", 1); /* a terminator */
    if (st == OK) {
        *out = strdup((const char *)is->data);
        st = *out ? OK : status_fail(ERR_NOMEM, "out of memory: an answer");
    }
    text_buffer_free(&text);
    text_buffer_free(&good);
    return st;
}

static uint64_t hash_of(const struct task_sample *s)
{
    XXH3_state_t *state = XXH3_createState();
    if (!state)
        return 0;
    XXH3_64bits_reset(state);
    XXH3_64bits_update(state, s->prompt.data, s->prompt.n);
    XXH3_64bits_update(state, s->lead.data, s->lead.n);
    const uint64_t hash = XXH3_64bits_digest(state);
    XXH3_freeState(state);
    return hash;
}

static enum status answer(struct job *j, int cell, const struct task_sample *s, struct task_answer *a)
{
    const struct task_results *r = j->r;
    struct ids prompt = {.n = 0}, right = {.n = 0};
    int64_t n = 0;
    const struct greedy how = {.ends = j->ends, .ids = prompts_ids(&j->prompts), .stop = signals_first()};
    const double began = clock_seconds();
    enum status st = task_rows_encode(&j->prompts, s, &prompt, &right);
    const int64_t most = st == OK ? room_of(j, (int64_t)right.n) : 0;
    int32_t *id = st == OK ? sys_realloc(j->id, (size_t)most * sizeof *id) : NULL;
    if (st == OK)
        st = id ? OK : status_fail(ERR_NOMEM, "out of memory: an answer");
    j->id = id ? id : j->id;
    if (st == OK)
        st = sampling_greedy(j->x, prompt.id, (int64_t)prompt.n, most, &how, j->id, &n);
    memset(a, 0, sizeof *a); /* other processes get all of its bytes */
    a->cell = cell;
    a->prompt_tokens = (int64_t)prompt.n;
    a->hash = hash_of(s);
    a->n_expected = s->n_expected;
    a->depth = task_has_depth(r->cell[cell].task) ? s->depth : NAN;
    memcpy(a->expected, s->expected, sizeof a->expected);
    if (st == OK)
        st = text_of(j, n, &a->text);
    if (st == OK) {
        a->score = task_score(s, a->text, strlen(a->text));
        a->seconds = clock_seconds() - began;
    }
    free(prompt.id);
    free(right.id);
    return st;
}

/* Answers sample number i of all, counted through the cells. */
static enum status answer_sample(struct job *j, int64_t i, struct task_answer *out)
{
    struct task_sample sample;
    const int cell = (int)(i / j->r->samples);
    TRY(generate(j, &j->r->cell[cell], i % j->r->samples, &sample));
    enum status st = answer(j, cell, &sample, out);
    task_sample_destroy(&sample);
    return st;
}

/* Answers one sample a rank, from sample `first` on. Neighbouring samples have one length, so that no rank waits long. */
static enum status answer_round(struct job *j, int64_t first)
{
    const int64_t own = first + comm_rank(j->comm), end = min_i64(first + comm_size(j->comm), task_answers_wanted(j->r));
    struct task_answer a = {.text = NULL};
    enum status st = OK;
    show_progress(j, &j->r->cell[first / j->r->samples]);
    if (own < end)
        st = answer_sample(j, own, &a);
    if (st == ERR_CANCELLED && atomic_load(signals_first()) != 0)
        st = OK;
    st = comm_agree(j->comm, st);
    if (st == OK)
        st = task_gather(j->comm, a.text ? &a : NULL, j->r);
    free(a.text);
    for (int64_t i = first; i < end && st == OK; i++) {
        const struct task_cell *c = &j->r->cell[i / j->r->samples];
        j->tokens_done += c->length;
        if ((i + 1) % j->r->samples == 0 && c->answers == j->r->samples)
            print_cell(j, (int)(i / j->r->samples));
    }
    return st;
}

static enum status open_model(struct job *j)
{
    TRY(sampling_open(j->s, j->comm, task_longest(j->r), &j->x));
    j->r->positions = train_made_for(j->s, j->x->model);
    return prompts_ends(&j->prompts, &j->generation.eos, j->x->model->config.vocab, &j->ends);
}

/* Seconds that a rank waits for the others: an answer may take hours. Ranks that have died are noticed all the same. */
static const double NO_TIMEOUT = 1e9;

static enum status answer_all(struct job *j, int *signal_number)
{
    enum status st = open_model(j);
    for (int i = 0; i < j->r->n_cells; i++)
        j->tokens_all += j->r->cell[i].length * j->r->samples;
    TRY(comm_agree(j->comm, st));
    j->began = clock_seconds();
    TRY(signals_stop_evaluation(j->comm, comm_rank(j->comm) == 0));
    comm_set_timeout(j->comm, NO_TIMEOUT);
    for (int64_t i = 0; i < task_answers_wanted(j->r) && st == OK && *signal_number == 0; i += comm_size(j->comm)) {
        st = answer_round(j, i);
        if (st == OK)
            st = signals_agree(j->comm, signal_number);
    }
    comm_set_timeout(j->comm, j->s->comm_timeout);
    erase_progress(j);
    if (*signal_number && j->r->n_answers == 0 && comm_rank(j->comm) == 0)
        fprintf(stderr, "ltrain: %s before the first answer: there is nothing to show\n", signals_name(*signal_number));
    return st;
}

/* Writes the samples (rank 0 only, since writing takes far less time than training on them). */
static enum status write_by_one(struct job *j, int *signal_number)
{
    TRY(signals_stop_evaluation(j->comm, 0));
    comm_set_timeout(j->comm, NO_TIMEOUT);
    enum status st = comm_agree(j->comm, comm_rank(j->comm) == 0 ? write_samples(j) : OK);
    comm_set_timeout(j->comm, j->s->comm_timeout);
    return st == OK ? signals_agree(j->comm, signal_number) : st;
}

enum status eval_tasks_run(struct settings *s, struct comm *c, struct task_results *out, int *signal_number)
{
    struct settings own = *s;
    struct job j = {.s = &own, .comm = c, .r = out};
    own.curriculum.n = 0;
    out->samples = s->samples;
    out->chat = s->chat;
    enum status st = comm_agree(c, open_prompts(&j));
    if (st == OK)
        st = compare_texts(&j);
    if (st == OK)
        st = s->write_samples ? write_by_one(&j, signal_number) : answer_all(&j, signal_number);
    sampling_close(j.x);
    prompts_close(&j.prompts);
    haystack_destroy(j.haystack);
    text_buffer_free(&j.text);
    free(j.generation.eos.id);
    free(j.ends);
    free(j.id);
    free(own.plan.hardware);
    free(own.plan.target);
    return st;
}
