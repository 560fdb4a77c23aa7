/* Worker of bench_adamw.py: `adamw_bench N` keeps N parameters with their optimizer state; each line of stdin names a contender,
 * which then runs once. */
#include "base/clock.h"
#include "ops/adamw.h"
#include "ops/rows.h"
#include "ops/simd.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

struct state {
    float *p, *m, *v, *g;
    bf16 *m16, *v16;
    float zero;
    int64_t n;
};

/* Makes an array as the planner might place it: arrays begin at different offsets in their pages, since otherwise stores delay
 * loads of other arrays. */
static float *filled(int64_t n, float value)
{
    static int64_t stagger;
    size_t bytes = (size_t)round_up(n * 4 + (1 << 20), 2 << 20);
    char *memory = aligned_alloc(2 << 20, bytes);
    if (!memory)
        exit(1);
    madvise(memory, bytes, MADV_HUGEPAGE);
    float *x = (float *)(memory + 1088 * stagger++);
#pragma omp parallel for schedule(static)
    for (int64_t i = 0; i < n; i++)
        x[i] = value * (float)(i % 1000 - 500);
    return x;
}

/* Reads and writes the arrays of one block. zero: 0, so that the values stay the same. */
CLONES static void stream_block(float *p, float *m, float *v, const float *grad, int64_t n, float zero)
{
#pragma omp simd
    for (int64_t i = 0; i < n; i++) {
        float pi = p[i], mi = m[i], vi = v[i], g = zero * grad[i];
        p[i] = pi + g;
        m[i] = mi + g;
        v[i] = vi + g;
    }
}

/* Moves the bytes that AdamW moves, and does nothing else: 4 arrays are read, 3 of them written in place. */
static void stream(const struct state *s)
{
#pragma omp parallel for schedule(static)
    for (int64_t at = 0; at < s->n; at += ROWS_BLOCK)
        stream_block(s->p + at, s->m + at, s->v + at, s->g + at, min_i64(ROWS_BLOCK, s->n - at), s->zero);
}

static void run(const struct state *s, const char *contender)
{
    struct norm_result norm = {.norm = 1, .factor = 1};
    struct step_record r = {
        .lr = 1e-4f, .weight_decay = 0.1f, .beta1 = 0.9f, .beta2 = 0.95f, .eps = 1e-8f, .bias1 = 0.1f, .bias2 = 0.05f};
    if (strcmp(contender, "stream") == 0)
        stream(s);
    else if (strcmp(contender, "fp32") == 0)
        ops_adamw(&(struct adamw_shape){.n = s->n, .n_decay = s->n}, s->p, s->m, s->v, s->g, &norm, &r, NULL);
    else if (strcmp(contender, "bf16") == 0)
        ops_adamw(&(struct adamw_shape){.n = s->n, .n_decay = s->n, .moments = BF16}, s->p, s->m16, s->v16, s->g, &norm, &r,
                  NULL);
    else
        exit(2);
}

int main(int argc, char **argv)
{
    char line[64];
    int64_t n = argc > 1 ? atoll(argv[1]) : 50000000;
    struct state s = {.p = filled(n, 1e-3f), .m = filled(n, 0), .v = filled(n, 0), .g = filled(n, 1e-4f), .n = n};
    s.m16 = (bf16 *)filled(n / 2, 0);
    s.v16 = (bf16 *)filled(n / 2, 0);
    while (fgets(line, sizeof line, stdin)) {
        line[strcspn(line, "\n")] = 0;
        int64_t t = clock_ns();
        run(&s, line);
        printf("{\"seconds\": %.9f}\n", (double)(clock_ns() - t) * 1e-9);
        fflush(stdout);
    }
    return 0;
}
