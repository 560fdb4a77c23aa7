/* Processing logits in the order of transformers' GenerationMixin: repetition penalty, temperature, top-k, top-p, min-p. */
#include "sample/sampler.h"

#include "base/num.h"
#include "base/rng.h"
#include "base/sys.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

struct sampler {
    struct sampler_settings set;
    int64_t vocab;
    uint8_t *seen; /* [vocab]: 1: the token has occurred in the text */
    struct sampler_choice *choice;
};

enum status sampler_create(const struct sampler_settings *settings, int64_t vocab, struct sampler **out)
{
    struct sampler *s = sys_calloc(1, sizeof *s);
    if (s) {
        *s = (struct sampler){.set = *settings, .vocab = vocab};
        s->seen = sys_calloc((size_t)vocab, 1);
        s->choice = sys_calloc((size_t)vocab, sizeof *s->choice);
    }
    if (!s || !s->seen || !s->choice) {
        sampler_destroy(s);
        return status_fail(ERR_NOMEM, "out of memory for sampling");
    }
    *out = s;
    return OK;
}

void sampler_destroy(struct sampler *s)
{
    if (!s)
        return;
    free(s->seen);
    free(s->choice);
    free(s);
}

/* Applies the penalty once to each token of the text, however often it occurs. */
static void penalize(struct sampler *s, float *logits, const int32_t *text, int64_t n)
{
    float penalty = (float)s->set.repetition_penalty;
    if (s->set.repetition_penalty == 1.0)
        return;
    memset(s->seen, 0, (size_t)s->vocab);
    for (int64_t i = 0; i < n; i++) {
        if (text[i] < 0 || text[i] >= s->vocab || s->seen[text[i]])
            continue;
        s->seen[text[i]] = 1;
        float *x = &logits[text[i]];
        *x = *x < 0 ? *x * penalty : *x / penalty;
    }
}

/* Orders choices by descending logit, equal ones by ascending id. */
static int by_logit(const void *a, const void *b)
{
    const struct sampler_choice *x = a, *y = b;
    return x->logit != y->logit ? (x->logit < y->logit) - (x->logit > y->logit) : (x->id > y->id) - (x->id < y->id);
}

/* Sets the probabilities of the first n choices, so that these add up to 1. */
static void softmax(struct sampler_choice *c, int64_t n)
{
    double sum = 0;
    for (int64_t i = 0; i < n; i++) {
        c[i].p = expf(c[i].logit - c[0].logit);
        sum += (double)c[i].p;
    }
    for (int64_t i = 0; i < n; i++)
        c[i].p = (float)((double)c[i].p / sum);
}

/* Returns the number of choices that are among the k best, or equal to the k-th. */
static int64_t keep_top_k(const struct sampler_choice *c, int64_t n, int64_t k)
{
    int64_t kept = k > 0 ? min_i64(k, n) : n;
    while (kept < n && c[kept].logit == c[kept - 1].logit)
        kept++;
    return kept;
}

/* Drops the worst choices whose probabilities together are at most 1 - p, but never the best choice. Returns the number left. */
static int64_t keep_top_p(struct sampler_choice *c, int64_t n, double p)
{
    double tail = 0;
    if (p >= 1.0)
        return n;
    softmax(c, n);
    while (n > 1 && (tail += (double)c[n - 1].p) <= 1.0 - p)
        n--;
    return n;
}

static int64_t keep_min_p(struct sampler_choice *c, int64_t n, double p)
{
    if (p <= 0)
        return n;
    softmax(c, n);
    while (n > 1 && c[n - 1].p < (float)p * c[0].p)
        n--;
    return n;
}

static enum status check(const struct sampler *s, const float *logits)
{
    int any = 0;
    for (int64_t i = 0; i < s->vocab; i++) {
        if (isnan(logits[i]))
            return status_fail(
                ERR_DIVERGED,
                "the model's logits are not numbers (token %lld): its weights are damaged or their type is too narrow",
                (long long)i);
        any |= isfinite(logits[i]);
    }
    return any ? OK : status_fail(ERR_DIVERGED, "none of the model's logits is finite: its weights are damaged");
}

/* Lists all tokens as choices, sorted, and returns their number. */
static int64_t list(struct sampler *s, const float *logits)
{
    const float temperature = (float)s->set.temperature;
    for (int64_t i = 0; i < s->vocab; i++)
        s->choice[i] = (struct sampler_choice){(int32_t)i, s->set.temperature == 1.0 ? logits[i] : logits[i] / temperature, 0};
    qsort(s->choice, (size_t)s->vocab, sizeof *s->choice, by_logit);
    return s->vocab;
}

enum status sampler_choices(struct sampler *s, float *logits, const int32_t *text, int64_t n_text,
                            const struct sampler_choice **out, int64_t *n)
{
    TRY(check(s, logits));
    penalize(s, logits, text, n_text);
    int64_t kept = keep_top_k(s->choice, list(s, logits), s->set.top_k);
    kept = keep_top_p(s->choice, kept, s->set.top_p);
    kept = keep_min_p(s->choice, kept, s->set.min_p);
    softmax(s->choice, kept);
    *out = s->choice;
    *n = kept;
    return OK;
}

static int32_t best(const struct sampler *s, const float *logits)
{
    int64_t at = 0;
    for (int64_t i = 1; i < s->vocab; i++)
        at = logits[i] > logits[at] ? i : at;
    return (int32_t)at;
}

enum status sampler_next(struct sampler *s, float *logits, const int32_t *text, int64_t n_text, int64_t index, int32_t *id)
{
    const struct sampler_choice *c;
    uint32_t random[4];
    int64_t n, i = 0;
    if (s->set.temperature == 0) {
        TRY(check(s, logits));
        penalize(s, logits, text, n_text);
        *id = best(s, logits);
        return OK;
    }
    TRY(sampler_choices(s, logits, text, n_text, &c, &n));
    rng_block(s->set.seed, rng_stream("sampling"), (uint64_t)index, random);
    double left = ((double)random[0] + 0.5) / 0x1p32;
    while (i < n - 1 && (left -= (double)c[i].p) >= 0)
        i++;
    *id = c[i].id;
    return OK;
}
