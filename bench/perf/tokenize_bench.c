/* Measures the speed of tokenizing: `tokenize_bench TOKENIZER TEXT [THREADS]` encodes the text in documents of 4 KB, then the
 * text as a whole, and prints MB per second of processor time, the best of five rounds. */
#include "base/parallel.h"
#include "text/tokenizer.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { DOCUMENT = 4096, TURNS = 5, MOST_THREADS = 8 };

struct job {
    const struct tokenizer *t;
    const uint8_t *text;
    size_t n, document;
    double seconds;
    size_t tokens;
};

static double processor_time(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static enum status run(void *data)
{
    struct job *j = data;
    struct encoder *e;
    struct ids ids = {0};
    TRY(encoder_create(j->t, &e));
    j->seconds = 1e30;
    for (int turn = 0; turn < TURNS; turn++) {
        double before = processor_time();
        ids.n = 0;
        for (size_t at = 0; at < j->n; at += j->document) {
            size_t n = j->n - at < j->document ? j->n - at : j->document;
            TRY(tokenizer_encode(e, j->text + at, n, 0, &ids));
        }
        double seconds = processor_time() - before;
        j->seconds = seconds < j->seconds ? seconds : j->seconds;
    }
    j->tokens = ids.n;
    free(ids.id);
    encoder_free(e);
    return OK;
}

int main(int argc, char **argv)
{
    struct tokenizer *t;
    int threads = argc > 3 ? atoi(argv[3]) : 1;
    FILE *f = argc > 2 ? fopen(argv[2], "rb") : NULL;
    if (!f || threads < 1 || threads > MOST_THREADS || tokenizer_open(argv[1], &t) != OK) {
        fprintf(stderr, "tokenize_bench TOKENIZER TEXT [THREADS]: %s\n", status_message());
        return 2;
    }
    fseek(f, 0, SEEK_END);
    size_t n = (size_t)ftell(f);
    uint8_t *text = malloc(n + 1);
    rewind(f);
    if (!text || fread(text, 1, n, f) != n)
        return 1;
    fclose(f);
    for (int whole = 0; whole < 2; whole++) {
        struct job job[MOST_THREADS];
        double seconds = 0;
        for (int i = 0; i < threads; i++)
            job[i] = (struct job){.t = t, .text = text, .n = n, .document = whole ? n : DOCUMENT};
        if (parallel_run(run, job, sizeof *job, threads) != OK) {
            fprintf(stderr, "tokenize_bench: %s\n", status_message());
            return 1;
        }
        for (int i = 0; i < threads; i++)
            seconds += job[i].seconds;
        printf("%s %d threads %.1f MB/s %zu tokens\n", whole ? "whole" : "4KB", threads, (double)n * threads / seconds * 1e-6,
               job[0].tokens);
    }
    free(text);
    tokenizer_close(t);
    return 0;
}
