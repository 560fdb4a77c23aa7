/* `ltrain tokenize`: a JSON string a line in, a JSON array of ids a line out, and back. */
#include "cli/tokenize.h"

#include "base/status.h"
#include "cli/options.h"
#include "text/tokenizer.h"

#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char usage[] = "usage: ltrain tokenize --model DIR [--special] [--decode]\n\n"
                            "Reads a JSON string a line and writes a JSON array of its token ids a line, by\n"
                            "DIR/tokenizer.json, or DIR/tokenizer.model; --model also takes the\n"
                            "file itself.\n"
                            "  --special  ids that the template puts before and behind a text, too;\n"
                            "             with --decode: special tokens in the text\n"
                            "  --decode   arrays of ids in, strings out\n";

struct job {
    const char *model;
    int special, decode;
    struct tokenizer *t;
    struct encoder *e;
    struct ids ids;
    struct text_buffer text;
};

static enum status read_arguments(int argc, char **argv, struct job *j)
{
    const struct cli_option all[] = {
        {"--model", &j->model, NULL}, {"--special", NULL, &j->special}, {"--decode", NULL, &j->decode}};
    TRY(cli_options_read("tokenize", argc, argv, all, sizeof all / sizeof *all, "--model DIR, --special and --decode"));
    return j->model ? OK
                    : status_fail(ERR_INVALID,
                                  "tokenize: --model DIR is needed: the directory of a tokenizer.json or tokenizer.model");
}

static enum status add_all(struct ids *out, const struct ids *more)
{
    for (size_t i = 0; i < more->n; i++)
        TRY(ids_add(out, more->id[i]));
    return OK;
}

static enum status encode(struct job *j, const json_t *line)
{
    const struct ids *before, *behind;
    if (!json_is_string(line))
        return status_fail(ERR_INVALID, "it is no JSON string");
    tokenizer_template(j->t, &before, &behind);
    if (j->special)
        TRY(add_all(&j->ids, before));
    TRY(tokenizer_encode(j->e, (const uint8_t *)json_string_value(line), json_string_length(line), 0, &j->ids));
    if (j->special)
        TRY(add_all(&j->ids, behind));
    putchar('[');
    for (size_t i = 0; i < j->ids.n; i++)
        printf(i ? ", %d" : "%d", j->ids.id[i]);
    printf("]\n");
    return OK;
}

static enum status decode(struct job *j, const json_t *line)
{
    if (!json_is_array(line))
        return status_fail(ERR_INVALID, "it is no JSON array");
    for (size_t i = 0; i < json_array_size(line); i++) {
        const json_t *id = json_array_get(line, i);
        if (!json_is_integer(id) || json_integer_value(id) < 0 || json_integer_value(id) > INT32_MAX)
            return status_fail(ERR_INVALID, "its element %zu is no token id", i);
        TRY(ids_add(&j->ids, (int32_t)json_integer_value(id)));
    }
    TRY(tokenizer_decode(j->t, j->ids.id, j->ids.n, j->special, &j->text));
    json_t *text = json_stringn(j->text.n ? (const char *)j->text.data : "", j->text.n);
    char *out = text ? json_dumps(text, JSON_ENCODE_ANY) : NULL;
    json_decref(text);
    if (!out)
        return status_fail(ERR_INVALID, "its text cannot be written as JSON");
    puts(out);
    free(out);
    return OK;
}

static enum status run_line(struct job *j, const char *line, size_t n)
{
    json_error_t error;
    json_t *value = json_loadb(line, n, JSON_DECODE_ANY | JSON_ALLOW_NUL, &error);
    if (!value)
        return status_fail(ERR_INVALID, "%s", error.text);
    j->ids.n = 0;
    j->text.n = 0;
    enum status st = j->decode ? decode(j, value) : encode(j, value);
    json_decref(value);
    return st;
}

static enum status run_lines(struct job *j)
{
    char *line = NULL, cause[600];
    size_t room = 0;
    ssize_t n;
    enum status st = OK;
    for (long long number = 1; st == OK && (n = getline(&line, &room, stdin)) >= 0; number++) {
        st = run_line(j, line, (size_t)n);
        if (st == OK)
            continue;
        snprintf(cause, sizeof cause, "%s", status_message());
        st = status_fail(st, "line %lld of standard input: %s", number, cause);
    }
    if (st == OK && ferror(stdin))
        st = status_fail(ERR_IO, "cannot read standard input: %s", strerror(errno));
    free(line);
    if (fflush(stdout) != 0 || ferror(stdout))
        st = st == OK ? status_fail(ERR_IO, "cannot write: standard output is full or closed") : st;
    return st;
}

int tokenize_command(int argc, char **argv)
{
    struct job j = {.model = NULL};
    for (int i = 0; i < argc; i++)
        if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0)
            return fputs(usage, stdout) < 0;
    enum status st = read_arguments(argc, argv, &j);
    if (st == OK)
        st = tokenizer_open(j.model, &j.t);
    if (st == OK && tokenizer_remark(j.t)[0])
        fprintf(stderr, "remark: %s\n", tokenizer_remark(j.t));
    if (st == OK)
        st = encoder_create(j.t, &j.e);
    if (st == OK)
        st = run_lines(&j);
    encoder_free(j.e);
    tokenizer_close(j.t);
    free(j.ids.id);
    text_buffer_free(&j.text);
    return cli_options_leave(st);
}
