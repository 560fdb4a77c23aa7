/* OP_SCAN and its gradient in fp64, token after token as defined. */
#include "oracle.h"

/* A token of a head: q and k after norm and scale, and the factors that made them. */
struct token {
    double q[256], k[256], q_norm, k_norm, keep[256], beta; /* keep: of each channel of a key */
    const double *v;
    int begins; /* 1: nothing of the state before is used */
};

static double norm_row(const struct oracle *x, double *out, const double *in, double scale)
{
    double sum = 0;
    for (int i = 0; i < x->a.scan.key_dim; i++)
        sum += in[i] * in[i];
    const double norm = x->a.scan.eps > 0 ? scale / sqrt(sum + (double)x->a.scan.eps) : scale;
    for (int i = 0; i < x->a.scan.key_dim; i++)
        out[i] = norm * in[i];
    return norm;
}

static int64_t key_column(const struct oracle *x, int64_t t, int h, int first)
{
    return t * x->a.scan.ld + first + h * x->a.scan.groups / x->a.scan.heads * x->a.scan.key_dim;
}

static int64_t value_column(const struct oracle *x, int64_t t, int h)
{
    return t * x->a.scan.ld + x->a.scan.v_first + h * x->a.scan.value_dim;
}

/* Returns the element of g that is the decay of channel i. */
static int64_t decay_of(const struct oracle *x, int64_t t, int h, int i)
{
    const int64_t at = t * x->a.scan.heads + h;
    return x->a.scan.kind == SCAN_CHANNELS ? at * x->a.scan.key_dim + i : at;
}

static void token_of(const struct oracle *x, int64_t t, int h, struct token *to)
{
    to->q_norm = norm_row(x, to->q, x->qkv + key_column(x, t, h, x->a.scan.q_first), (double)x->a.scan.scale);
    to->k_norm = norm_row(x, to->k, x->qkv + key_column(x, t, h, x->a.scan.k_first), 1);
    to->v = x->qkv + value_column(x, t, h);
    to->begins = x->links[t] == ROW_BEGINS;
    for (int i = 0; i < x->a.scan.key_dim; i++)
        to->keep[i] = to->begins ? 0 : exp(x->g[decay_of(x, t, h, i)]);
    to->beta = x->beta[t * x->a.scan.heads + h];
}

/* Computes u, and, if `error` is not NULL, what beta multiplies. */
static void update_of(const struct oracle *x, const struct token *t, const double *state, double *u, double *error)
{
    const int kd = x->a.scan.key_dim, vd = x->a.scan.value_dim;
    for (int j = 0; j < vd; j++) {
        double e = t->v[j];
        for (int i = 0; i < kd && x->a.scan.kind != SCAN_SSD && !t->begins; i++)
            e -= t->keep[i] * state[i * vd + j] * t->k[i];
        u[j] = t->beta * e;
        if (error)
            error[j] = e;
    }
}

static void step(const struct oracle *x, const struct token *t, double *state)
{
    double u[256];
    const int kd = x->a.scan.key_dim, vd = x->a.scan.value_dim;
    update_of(x, t, state, u, NULL);
    for (int i = 0; i < kd; i++)
        for (int j = 0; j < vd; j++)
            state[i * vd + j] = (t->begins ? 0 : t->keep[i] * state[i * vd + j]) + t->k[i] * u[j];
}

void oracle_scan(struct oracle *x)
{
    const int kd = x->a.scan.key_dim, vd = x->a.scan.value_dim;
    double *state = malloc((size_t)(kd * vd) * sizeof *state);
    for (int h = 0; h < x->a.scan.heads; h++) {
        for (int i = 0; i < kd * vd; i++)
            state[i] = x->before ? x->before[h * kd * vd + i] : 0;
        for (int64_t r = 0; r < x->a.scan.rows; r++) {
            double *o = x->o + (r * x->a.scan.heads + h) * vd;
            struct token t;
            memset(o, 0, (size_t)vd * sizeof *o);
            if (x->links[r] == ROW_NONE)
                continue;
            token_of(x, r, h, &t);
            step(x, &t, state);
            for (int j = 0; j < vd; j++) {
                o[j] = x->skip ? x->skip[h] * t.v[j] : 0;
                for (int i = 0; i < kd; i++)
                    o[j] += state[i * vd + j] * t.q[i];
            }
        }
        for (int i = 0; i < kd * vd && x->after; i++)
            x->after[h * kd * vd + i] = state[i];
    }
    free(state);
}

static void add_norm_gradient(const struct oracle *x, double *to, const double *y, const double *dy, double norm, double scale)
{
    double dot = 0;
    for (int i = 0; i < x->a.scan.key_dim; i++)
        dot += y[i] * dy[i];
    for (int i = 0; i < x->a.scan.key_dim; i++)
        to[i] += norm * (dy[i] - (x->a.scan.eps > 0 ? y[i] * dot / (scale * scale) : 0));
}

/* Computes the gradients of a token of head h; ds, the gradient of the state after the token, becomes that of the state before. */
static void step_gradient(struct oracle *x, int64_t r, int h, const double *before, const double *after, double *ds)
{
    const int kd = x->a.scan.key_dim, vd = x->a.scan.value_dim, heads = x->a.scan.heads;
    const double *d_out = x->d_out + (r * heads + h) * vd;
    double u[256], error[256], du[256] = {0}, dq[256] = {0}, dk[256] = {0}, dbeta = 0;
    struct token t;
    token_of(x, r, h, &t);
    update_of(x, &t, before, u, error);
    for (int i = 0; i < kd; i++)
        for (int j = 0; j < vd; j++) {
            dq[i] += after[i * vd + j] * d_out[j];
            ds[i * vd + j] += t.q[i] * d_out[j];
            du[j] += ds[i * vd + j] * t.k[i];
            dk[i] += ds[i * vd + j] * u[j];
        }
    for (int j = 0; j < vd; j++) {
        dbeta += du[j] * error[j];
        x->dqkv[value_column(x, r, h) + j] += t.beta * du[j] + (x->skip ? x->skip[h] * d_out[j] : 0);
        if (x->skip)
            x->dskip[h] += d_out[j] * t.v[j];
    }
    for (int i = 0; i < kd; i++)
        for (int j = 0; j < vd; j++) {
            double *to = &ds[i * vd + j], kept = t.begins ? 0 : t.keep[i] * before[i * vd + j];
            if (x->a.scan.kind != SCAN_SSD) {
                dk[i] -= t.beta * du[j] * kept;
                *to -= t.beta * t.k[i] * du[j];
            }
            x->dg[decay_of(x, r, h, i)] += *to * kept;
            *to *= t.keep[i];
        }
    x->dbeta[r * heads + h] = dbeta;
    add_norm_gradient(x, x->dqkv + key_column(x, r, h, x->a.scan.q_first), t.q, dq, t.q_norm, (double)x->a.scan.scale);
    add_norm_gradient(x, x->dqkv + key_column(x, r, h, x->a.scan.k_first), t.k, dk, t.k_norm, 1);
}

void oracle_scan_grad(struct oracle *x)
{
    const int64_t n = x->a.scan.key_dim * (int64_t)x->a.scan.value_dim, rows = x->a.scan.rows;
    double *states = malloc((size_t)((rows + 1) * n) * sizeof *states);
    memset(x->dqkv, 0, (size_t)(rows * x->a.scan.ld) * sizeof *x->dqkv);
    memset(x->dg, 0, (size_t)(decay_of(x, rows, 0, 0)) * sizeof *x->dg);
    memset(x->dbeta, 0, (size_t)(rows * x->a.scan.heads) * sizeof *x->dbeta);
    for (int h = 0; h < x->a.scan.heads; h++) {
        for (int64_t i = 0; i < n; i++)
            states[i] = x->before ? x->before[h * n + i] : 0;
        for (int64_t r = 0; r < rows; r++) {
            struct token t;
            memcpy(states + (r + 1) * n, states + r * n, (size_t)n * sizeof *states);
            if (x->links[r] == ROW_NONE)
                continue;
            token_of(x, r, h, &t);
            step(x, &t, states + (r + 1) * n);
        }
        for (int64_t r = rows - 1; r >= 0; r--)
            if (x->links[r] != ROW_NONE)
                step_gradient(x, r, h, states + r * n, states + (r + 1) * n, x->dstate + h * n);
    }
    free(states);
}
