/* `ltrain sample`: from a prompt, or from turns of a chat, to text on stdout. */
#include "eval/sample.h"

#include "base/clock.h"
#include "base/sys.h"
#include "base/units.h"
#include "eval/generation.h"
#include "eval/interrupts.h"
#include "eval/prompts.h"
#include "eval/sampling.h"
#include "eval/stream_text.h"
#include "settings/read.h"
#include "train/train.h"

#include <errno.h>
#include <jansson.h>
#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define PROMPT_TOKENS 256 /* tokens of the answer to a prompt, unless --max-new-tokens gives them */
#define CHAT_TOKENS 8192  /* room of a conversation, unless --seq-len gives it or the model has fewer positions */

struct job {
    struct settings *s;
    struct comm *comm;
    struct prompts prompts;
    struct generation generation;
    struct sampling *x;
    struct sampler *sampler;
    struct sampler_settings how;
    uint8_t *ends;    /* [ids of the model]: tokens that end an answer */
    json_t *messages; /* messages of the chat */
    int64_t drawn;    /* tokens drawn so far, for the random numbers */
    int terminal;     /* 1: stdin and stdout are a terminal, and the output is not JSON */
};

/* --- Opening --- */

static double or_else(double given, double said, double none)
{
    return given >= 0 ? given : said >= 0 ? said : none;
}

/* Chooses the way to draw. Options win. Without any of them, generation_config.json counts if it says that it samples, as in
 * transformers. */
static void choose_how(struct job *j)
{
    const struct settings *s = j->s;
    struct generation g = j->generation;
    int asked = s->top_k > 0 || (s->top_p >= 0 && s->top_p < 1) || s->min_p > 0;
    if (!g.samples)
        g.temperature = g.top_p = g.min_p = -1, g.top_k = -1;
    j->how = (struct sampler_settings){.temperature = or_else(s->temperature, g.temperature, g.samples || asked ? 1 : 0),
                                       .top_k = s->top_k >= 0  ? s->top_k
                                                : g.top_k >= 0 ? g.top_k
                                                : g.samples    ? 50
                                                               : 0,
                                       .top_p = or_else(s->top_p, g.top_p, 1),
                                       .min_p = or_else(s->min_p, g.min_p, 0),
                                       .repetition_penalty = or_else(s->repetition_penalty, g.repetition_penalty, 1),
                                       .seed = s->seed};
}

static enum status open_chat(struct job *j)
{
    TRY(prompts_open_chat(j->s, &j->prompts));
    j->messages = json_array();
    if (j->messages && j->s->system)
        json_array_append_new(j->messages, json_pack("{s:s, s:s}", "role", "system", "content", j->s->system));
    return j->messages ? OK : status_fail(ERR_NOMEM, "out of memory for a chat");
}

/* Prints notes on stderr, as answers stand alone on standard output. */
static void print_notes(const struct job *j, int64_t tokens)
{
    char a[32], b[32];
    const int64_t positions = train_made_for(j->s, j->x->model);
    train_print_unknown(j->x->model, stderr);
    if (j->generation.undone[0])
        fprintf(stderr,
                "warning: generation_config.json asks for %s, which ltrain does not do: transformers writes other texts\n",
                j->generation.undone);
    if (positions > 0 && tokens > positions)
        fprintf(
            stderr,
            "warning: prompt and answer have room for %s tokens, beyond the %s positions that the model was made for (--rope stretches them)\n",
            units_format_count(tokens, a), units_format_count(positions, b));
}

/* Opens the model with room for `tokens` tokens; learned positions limit it. */
static enum status open_model(struct job *j, int64_t tokens)
{
    TRY(sampling_open(j->s, j->comm, tokens, &j->x));
    print_notes(j, tokens);
    TRY(sampler_create(&j->how, j->x->model->config.vocab, &j->sampler));
    return prompts_ends(&j->prompts, &j->generation.eos, j->x->model->config.vocab, &j->ends);
}

/* Returns the number of positions that the model has, if it learns them, or was made for; *soft: 1: made for, which is no limit. */
static enum status positions(const struct settings *s, int64_t *out, int *soft)
{
    struct model_config c;
    TRY(model_is_preset(s->model) ? model_preset(s->model, &c) : model_config_read(s->model, &c));
    TRY(model_config_set_rope(&c, s->rope, s->rope_base));
    *out = c.max_positions;
    *soft = !model_learns_positions(&c);
    return OK;
}

/* --- Answers --- */

/* An answer and its figures. */
struct answer {
    struct stream_text text;
    const char *ended; /* "eos", "length", "context", "stop-at", "interrupted" */
    int64_t prompt;    /* tokens */
    double prefill, seconds;
    int64_t read;                   /* tokens of the prompt that were not read before */
    struct decoder_experts experts; /* experts on the device, and choices of them while the answer was written */
};

static void hand_on(struct job *j, struct stream_text *t, size_t end)
{
    if (!j->s->json && end > t->given) {
        fwrite(t->text.data + t->given, 1, end - t->given, stdout);
        fflush(stdout);
    }
    t->given = end > t->given ? end : t->given;
}

/* Excludes rows of a padded vocabulary that have no token. */
static void forbid_nameless(struct job *j)
{
    for (int64_t i = prompts_ids(&j->prompts); i < j->x->model->config.vocab; i++)
        j->x->logits[i] = -INFINITY;
}

/* Draws tokens one by one, from the logits in j->x. */
static enum status draw(struct job *j, struct answer *a)
{
    struct decoder *d = j->x->decoder;
    a->ended = "length";
    for (int64_t i = 0; i < j->s->max_new_tokens; i++) {
        int32_t id;
        size_t end;
        forbid_nameless(j);
        TRY(sampler_next(j->sampler, j->x->logits, decoder_tokens(d), decoder_length(d), j->drawn++, &id));
        if (j->ends[id]) {
            a->ended = "eos";
            break;
        }
        TRY(stream_text_add(&a->text, id, &end));
        hand_on(j, &a->text, end);
        if (a->text.stopped || decoder_length(d) == decoder_capacity(d)) {
            a->ended = a->text.stopped ? "stop-at" : "context";
            break;
        }
        enum status st = i + 1 < j->s->max_new_tokens ? decoder_feed(d, &id, 1, interrupts_flag(), j->x->logits) : OK;
        if (st == ERR_CANCELLED) {
            a->ended = "interrupted";
            break;
        }
        TRY(st);
    }
    return OK;
}

static enum status answer(struct job *j, const struct ids *prompt, struct answer *a)
{
    size_t end;
    struct decoder *d = j->x->decoder;
    double began = clock_seconds();
    int64_t before = decoder_length(d), same = 0;
    *a = (struct answer){.text = {.tokenizer = j->prompts.tokenizer, .stop_at = &j->s->stop_at},
                         .ended = "interrupted",
                         .prompt = (int64_t)prompt->n};
    while (same < before && same < (int64_t)prompt->n - 1 && decoder_tokens(d)[same] == prompt->id[same])
        same++;
    a->read = (int64_t)prompt->n - same;
    struct decoder_experts experts;
    TRY(decoder_experts(d, &experts));
    enum status st = decoder_read(d, prompt->id, (int64_t)prompt->n, interrupts_flag(), j->x->logits);
    a->prefill = clock_seconds() - began;
    if (st == OK)
        st = draw(j, a);
    else if (st == ERR_CANCELLED)
        st = OK;
    a->seconds = clock_seconds() - began - a->prefill;
    if (st == OK)
        st = stream_text_end(&a->text, &end);
    if (st == OK)
        hand_on(j, &a->text, end);
    if (st == OK)
        st = decoder_experts(d, &a->experts);
    a->experts.hits -= experts.hits;
    a->experts.misses -= experts.misses;
    return st;
}

static enum status print_json(const struct answer *a)
{
    json_t *ids = json_array(), *o = json_object();
    for (size_t i = 0; i < a->text.ids.n; i++)
        json_array_append_new(ids, json_integer(a->text.ids.id[i]));
    json_object_set_new(o, "text", json_stringn(a->text.text.data ? (const char *)a->text.text.data : "", a->text.text.n));
    json_object_set_new(o, "tokens", ids);
    json_object_set_new(o, "ended", json_string(a->ended));
    json_object_set_new(o, "prompt_tokens", json_integer(a->prompt));
    json_object_set_new(o, "prefill_tokens", json_integer(a->read));
    json_object_set_new(o, "prefill_seconds", json_real(a->prefill));
    json_object_set_new(o, "seconds", json_real(a->seconds));
    if (a->experts.slots > 0)
        json_object_set_new(o, "experts",
                            json_pack("{s:I, s:I, s:I, s:I}", "kept", (json_int_t)a->experts.slots, "of",
                                      (json_int_t)a->experts.experts, "hits", (json_int_t)a->experts.hits, "misses",
                                      (json_int_t)a->experts.misses));
    int failed = json_dumpf(o, stdout, JSON_COMPACT) != 0 || fputc('\n', stdout) == EOF || fflush(stdout) != 0;
    json_decref(o);
    return failed ? status_fail(ERR_IO, "cannot write the answer: standard output is full or closed") : OK;
}

/* Prints how many experts of each layer the device has, and how often the chosen ones were there. */
static void print_experts(const struct decoder_experts *e)
{
    const int64_t chosen = e->hits + e->misses;
    if (e->slots > 0)
        printf("[%lld of %lld experts of a layer kept on the device: %lld of %lld chosen ones were there (%.0f%%)]\n",
               (long long)e->slots, (long long)e->experts, (long long)e->hits, (long long)chosen,
               chosen > 0 ? 100.0 * (double)e->hits / (double)chosen : 0.0);
}

static enum status print_end(const struct job *j, const struct answer *a)
{
    if (j->s->json)
        return print_json(a);
    fputc('\n', stdout);
    if (j->s->verbose)
        print_experts(&a->experts);
    if (j->s->verbose)
        printf("[%lld of %lld tokens read in %.2f s (%.0f a second), %zu written in %.2f s (%.1f a second): %s]\n",
               (long long)a->read, (long long)a->prompt, a->prefill, (double)a->read / a->prefill, a->text.ids.n, a->seconds,
               a->seconds > 0 ? (double)a->text.ids.n / a->seconds : 0, a->ended);
    return fflush(stdout) == 0 ? OK : status_fail(ERR_IO, "cannot write the answer: standard output is full or closed");
}

/* --- Prompts --- */

static enum status read_all(FILE *f, const char *name, struct text_buffer *out)
{
    char piece[1 << 16];
    size_t n;
    while ((n = fread(piece, 1, sizeof piece, f)) > 0)
        TRY(text_buffer_add(out, piece, n));
    return ferror(f) ? status_fail(ERR_IO, "cannot read %s: %s", name, strerror(errno)) : OK;
}

static enum status read_prompt(const struct settings *s, struct text_buffer *out)
{
    if (s->prompt)
        return text_buffer_add(out, s->prompt, strlen(s->prompt));
    if (!s->prompt_file || strcmp(s->prompt_file, "-") == 0)
        return read_all(stdin, "standard input", out);
    FILE *f = sys_read_text(s->prompt_file);
    if (!f)
        return status_fail(ERR_INVALID, "--prompt-file: cannot read %s: %s", s->prompt_file, sys_strerror(errno));
    enum status st = read_all(f, s->prompt_file, out);
    fclose(f);
    return st;
}

static enum status say(struct job *j, const char *role, const void *text, size_t n)
{
    json_t *content = json_stringn(text, n);
    if (!content)
        return status_fail(ERR_INVALID, "what was said is no UTF-8 text");
    return json_array_append_new(j->messages, json_pack("{s:s, s:o}", "role", role, "content", content)) == 0
               ? OK
               : status_fail(ERR_NOMEM, "out of memory for a chat");
}

static enum status repair(struct text_buffer *text)
{
    struct text_buffer good = {0};
    int64_t n;
    TRY(text_repair(text->data, text->n, &good, &n));
    if (n > 0) {
        text_buffer_free(text);
        *text = good;
    }
    return OK;
}

/* Encodes the prompt. */
static enum status encode_prompt(struct job *j, struct ids *out)
{
    struct text_buffer text = {0};
    enum status st = read_prompt(j->s, &text);
    if (st == OK && j->prompts.tokenizer)
        st = repair(&text);
    if (st == OK && j->prompts.chats)
        st = say(j, "user", text.data, text.n);
    if (st == OK)
        st = j->prompts.chats ? prompts_encode_chat(&j->prompts, j->messages, out) : prompts_encode(&j->prompts, &text, 0, out);
    text_buffer_free(&text);
    return st == OK && out->n == 0 ? status_fail(ERR_INVALID, "the prompt is empty: there is nothing to read on") : st;
}

/* Returns the room for prompt and answer that positions and --seq-len allow. */
static enum status room_for(const struct job *j, int64_t prompt, int64_t *out)
{
    int64_t most, wanted = prompt + j->s->max_new_tokens;
    int soft;
    TRY(positions(j->s, &most, &soft));
    if (j->s->plan.seq_len > 0)
        wanted = j->s->plan.seq_len;
    if (!soft)
        wanted = min_i64(wanted, most);
    if (prompt > wanted)
        return status_fail(ERR_INVALID, "the prompt has %lld tokens, and %lld is the longest text (%s)", (long long)prompt,
                           (long long)wanted, soft || wanted < most ? "--seq-len" : "the model's learned positions");
    *out = max_i64(wanted, 2);
    return OK;
}

static enum status run_prompt(struct job *j, int *signal_number)
{
    struct ids prompt = {0};
    struct answer a = {0};
    int64_t room = 0;
    enum status st = encode_prompt(j, &prompt);
    if (st == OK)
        st = room_for(j, (int64_t)prompt.n, &room);
    if (st == OK)
        st = open_model(j, room);
    if (st == OK) {
        interrupts_catch();
        st = answer(j, &prompt, &a);
    }
    if (st == OK)
        st = print_end(j, &a);
    *signal_number = st == OK && atomic_load(interrupts_flag()) ? SIGINT : 0;
    stream_text_free(&a.text);
    free(prompt.id);
    return st;
}

/* --- A conversation --- */

/* Reads a line without its end. Returns 0 if there are no more. An interrupt gives an empty line, and the next call forgets the
 * interrupt. */
static int read_line(const struct job *j, FILE *in, char **line, size_t *room)
{
    interrupts_forget();
    if (j->terminal) {
        fputs("> ", stdout);
        fflush(stdout);
    }
    ssize_t n = getline(line, room, in);
    if (atomic_load(interrupts_flag())) {
        clearerr(in);
        if (j->terminal)
            fputc('\n', stdout);
        if (*line)
            **line = 0;
        return *line != NULL;
    }
    if (n < 0) {
        if (j->terminal) /* the next output begins a line */
            fputc('\n', stdout);
        return 0;
    }
    while (n > 0 && ((*line)[n - 1] == '\n' || (*line)[n - 1] == '\r'))
        (*line)[--n] = 0;
    return 1;
}

static enum status reset(struct job *j)
{
    json_array_clear(j->messages);
    if (j->s->system)
        TRY(say(j, "system", j->s->system, strlen(j->s->system)));
    return OK;
}

/* Adds a turn and its answer to the conversation. */
static enum status turn(struct job *j, const char *line)
{
    struct ids prompt = {0};
    struct answer a = {0};
    enum status st = say(j, "user", line, strlen(line));
    if (st == OK)
        st = prompts_encode_chat(&j->prompts, j->messages, &prompt);
    if (st == OK && (int64_t)prompt.n > decoder_capacity(j->x->decoder)) {
        printf("The conversation has %zu tokens, and there is room for %lld (--seq-len): /reset begins anew.\n", prompt.n,
               (long long)decoder_capacity(j->x->decoder));
        json_array_remove(j->messages, json_array_size(j->messages) - 1);
    } else if (st == OK) {
        st = answer(j, &prompt, &a);
        if (st == OK)
            st = print_end(j, &a);
        if (st == OK)
            st = say(j, "assistant", a.text.text.data ? (const char *)a.text.text.data : "", a.text.text.n);
    }
    stream_text_free(&a.text);
    free(prompt.id);
    return st;
}

static enum status converse(struct job *j)
{
    char *line = NULL;
    size_t room = 0;
    FILE *in = interrupts_open_input();
    enum status st = in ? OK : status_fail(ERR_NOMEM, "out of memory for a chat");
    while (st == OK && read_line(j, in, &line, &room)) {
        if (strcmp(line, "/exit") == 0)
            break;
        if (strcmp(line, "/reset") == 0)
            st = reset(j);
        else if (line[0])
            st = turn(j, line);
    }
    free(line);
    if (in)
        fclose(in);
    return st;
}

static enum status run_chat(struct job *j)
{
    int64_t most, room = j->s->plan.seq_len;
    int soft;
    TRY(positions(j->s, &most, &soft));
    if (room == 0)
        room = min_i64(most, CHAT_TOKENS);
    TRY(open_model(j, soft ? room : min_i64(room, most)));
    interrupts_catch();
    if (j->terminal)
        printf("%s, room for %lld tokens. /reset begins anew, /exit ends, Ctrl-C stops an answer.\n", j->x->model->config.name,
               (long long)decoder_capacity(j->x->decoder));
    return converse(j);
}

static void close_job(struct job *j)
{
    sampler_destroy(j->sampler);
    sampling_close(j->x);
    prompts_close(&j->prompts);
    json_decref(j->messages);
    free(j->generation.eos.id);
    free(j->ends);
}

/* Refuses a run to go on with, and options of chats where the prompt is read on as it is. */
static enum status check_options(const struct settings *s, int conversation)
{
    static const char *const of_chats[] = {"system", "chat-template", "template-var"};
    if (s->resume)
        return status_fail(ERR_INVALID, "--resume goes on with training; sample a run's model by --model %s", s->resume);
    if (s->prompt_file && !s->prompt_file[0])
        return status_fail(ERR_INVALID, "--prompt-file: an empty name");
    for (size_t i = 0; i < sizeof of_chats / sizeof *of_chats && !s->chat && !conversation; i++)
        if (settings_is_typed(s, of_chats[i]))
            return status_fail(ERR_INVALID, "--%s is of a chat, and the prompt is read on as it is: give --chat, too",
                               of_chats[i]);
    return OK;
}

enum status sample_run(struct settings *s, struct comm *c, int *signal_number)
{
    if (comm_size(c) > 1)
        return comm_agree(c,
                          status_fail(ERR_INVALID, "ltrain sample runs on one rank, and %d were started: leave out the launcher",
                                      comm_size(c)));
    struct job j = {.s = s, .comm = c, .terminal = isatty(STDIN_FILENO) && isatty(STDOUT_FILENO) && !s->json};
    int given = s->prompt || s->prompt_file, conversation = !given && (s->chat || isatty(STDIN_FILENO));
    TRY(check_options(s, conversation));
    if (s->max_new_tokens == AUTO)
        s->max_new_tokens = conversation ? INT32_MAX : PROMPT_TOKENS;
    enum status st = prompts_open(s, &j.prompts);
    if (st == OK)
        st = generation_read(s, &j.generation);
    choose_how(&j);
    if (st == OK && (s->chat || conversation))
        st = open_chat(&j);
    if (st == OK)
        st = conversation ? run_chat(&j) : run_prompt(&j, signal_number);
    close_job(&j);
    return st;
}
