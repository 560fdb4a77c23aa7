/* Laying micro-batches out over ranks. */
#include "engine/batch.h"

#include "base/sys.h"
#include "model/config/token_rows.h"

#include <stdlib.h>
#include <string.h>

struct batch {
    struct session *s;
    struct seq_shape shape; /* shape of a micro-batch or, if stages take it in slices, of a slice */
    struct seq_layout *layout;
    int slices;
    uint64_t digest;       /* digest of the documents' borders, published last, if there are slices */
    int ring, ulysses, tp; /* this rank's indices in its groups */
    float *weights;        /* weights of the whole sequence; NULL as `memory`, and without weights */
    int32_t *memory;       /* the five arrays of the whole sequence; NULL if this rank has its sequences to itself */
    int32_t *rows;         /* room for the rows that slices share; NULL without slices */
    struct sequence whole; /* arrays of the whole sequence: in `memory`, or the program's own inputs */
    uint8_t *needs;
    int64_t each;                   /* tokens of a sequence */
    int64_t first_token, first_row; /* first token of a slice in its sequence; first row of a share for the model's ends */
    int32_t *slot; /* [vocab]: each token's row among those of the embedding that are trained by themselves, -1: none; or NULL */
    int32_t *column; /* tokens of the head's rows that are trained by themselves; or NULL */
    int64_t *used;   /* tokens of each of the micro-batch's sequences before its padding */
};

static struct sequence inputs(struct session *s)
{
    const struct io_buffers *io = &s->plan->io;
    return (struct sequence){.tokens = session_io(s, io->tokens),
                             .targets = session_io(s, io->targets),
                             .positions = session_io(s, io->positions),
                             .lo = session_io(s, io->lo[0]),
                             .hi = session_io(s, io->hi[0]),
                             .weights = io->weights >= 0 ? session_io(s, io->weights) : NULL};
}

/* Returns the tokens of all slices together, padding included. */
static int64_t padded(const struct batch *b)
{
    return b->slices * b->shape.padded;
}

/* Lists the rows of tokens that are trained by themselves. */
static enum status list_rows(struct batch *b)
{
    const struct model *m = b->s->model;
    struct token_rows_list all;
    if (!model_has_rows(m))
        return OK;
    TRY(token_rows_of(m, &all));
    const int64_t vocab = m->config.vocab, n = m->head_rows >= 0 ? m->params[m->head_rows].shape[0] : 0;
    b->slot = sys_malloc((size_t)vocab * sizeof *b->slot);
    b->column = sys_calloc((size_t)n + 1, sizeof *b->column);
    enum status st = b->slot && b->column ? OK : status_no_memory("for rows of tokens");
    for (int64_t t = 0; t < vocab && st == OK; t++)
        b->slot[t] = -1;
    for (int k = 0; k < all.n && st == OK; k++) {
        const struct token_rows *x = &all.of[k];
        const int matrix = token_rows_matrix(m, x);
        for (int64_t i = 0; i < x->tensor.shape[0] && matrix == m->embed; i++)
            b->slot[x->token[i]] = (int32_t)i;
        if (matrix == m->head.weight)
            memcpy(b->column, x->token, (size_t)n * sizeof *b->column);
    }
    token_rows_free(&all);
    return st;
}

enum status batch_create(struct session *s, int64_t seq_len, struct batch **out)
{
    const struct strategy *mesh = &s->plan->strategy;
    struct batch *b = sys_calloc(1, sizeof *b);
    enum status st;
    if (!b)
        return status_fail(ERR_NOMEM, "out of memory for a sequence's layout");
    b->s = s;
    b->ring = comm_member(s->comm, LANE_RING);
    b->ulysses = comm_member(s->comm, LANE_ULYSSES);
    b->tp = comm_member(s->comm, LANE_TP);
    b->each = seq_len;
    b->slices = strategy_slices(mesh);
    TRY_GOTO(seq_shape_create_pieces(ceil_div(mesh->key.packed * seq_len, b->slices), mesh->key.mesh.degree[MESH_ULYSSES],
                                     mesh->key.mesh.degree[MESH_RING], SEQ_AUTO, model_least_piece(s->model),
                                     mesh_degree(&mesh->key.mesh, MESH_TP), &b->shape),
             fail);
    TRY_GOTO(seq_layout_create(&b->shape, &b->layout), fail);
    TRY_GOTO(list_rows(b), fail);
    b->whole = inputs(s);
    b->used = sys_calloc((size_t)mesh->key.packed, sizeof *b->used);
    b->needs = sys_calloc((size_t)mesh->key.mesh.degree[MESH_RING] * (size_t)mesh->key.mesh.degree[MESH_RING], 1);
    const int shared = mesh_sharing(&mesh->key.mesh) * b->slices > 1;
    if (shared) {
        const size_t n = (size_t)padded(b);
        b->memory = sys_calloc(5 * n, sizeof *b->memory);
        b->weights = b->whole.weights ? sys_calloc(n, sizeof *b->weights) : NULL;
        int32_t *m = b->memory;
        if (m)
            b->whole = (struct sequence){
                .tokens = m, .targets = m + n, .positions = m + 2 * n, .lo = m + 3 * n, .hi = m + 4 * n, .weights = b->weights};
    }
    const int sliced = mesh_degree(&mesh->key.mesh, MESH_TP) > 1;
    b->rows = sliced ? sys_calloc((size_t)mesh->rows, sizeof *b->rows) : NULL;
    if (!b->needs || !b->used || (shared && (!b->memory || (s->plan->io.weights >= 0 && !b->weights))) || (sliced && !b->rows)) {
        st = status_fail(ERR_NOMEM, "out of memory for a sequence's layout");
        goto fail;
    }
    *out = b;
    return OK;
fail:
    batch_destroy(b);
    return st;
}

void batch_destroy(struct batch *b)
{
    if (!b)
        return;
    seq_layout_destroy(b->layout);
    free(b->memory);
    free(b->rows);
    free(b->weights);
    free(b->needs);
    free(b->slot);
    free(b->column);
    free(b->used);
    free(b);
}

/* Returns the arrays of the i-th sequence of the micro-batch. */
static struct sequence part(const struct batch *b, int64_t i)
{
    const int64_t first = i * b->each;
    const struct sequence *all = &b->whole;
    return (struct sequence){.tokens = all->tokens + first,
                             .targets = all->targets + first,
                             .positions = all->positions + first,
                             .lo = all->lo + first,
                             .hi = all->hi + first,
                             .weights = all->weights ? all->weights + first : NULL};
}

struct sequence batch_arrays(struct batch *b, int64_t i)
{
    const struct sequence own = part(b, i);
    for (int64_t k = 0; own.weights && k < b->each; k++)
        own.weights[k] = 1;
    return own;
}

void batch_add(struct batch *b, int64_t i, int64_t used)
{
    const int32_t first = (int32_t)(i * b->each);
    const struct sequence own = part(b, i);
    for (int64_t k = 0; k < used && first > 0; k++) {
        own.lo[k] += first;
        own.hi[k] += first;
    }
    b->used[i] = used;
}

/* Turns tokens [first, end) into padding. Positions of -1 tell routers which tokens no expert's count has. */
static void pad(struct batch *b, int64_t first, int64_t end)
{
    const struct seq_tokens t = {b->whole.tokens, b->whole.targets, b->whole.positions, b->whole.lo};
    seq_pad(first, end, &t);
    for (int64_t i = first; i < end; i++)
        b->whole.hi[i] = (int32_t)i;
    for (int64_t i = first; b->s->model->config.experts > 0 && i < end; i++)
        b->whole.positions[i] = -1;
}

/* Pads the first n sequences, those that are missing, and the micro-batch. */
static void pad_all(struct batch *b, int64_t n)
{
    const int64_t packed = b->s->plan->strategy.key.packed;
    for (int64_t i = 0; i < packed; i++) {
        b->used[i] = i < n ? b->used[i] : 0;
        pad(b, i * b->each + b->used[i], (i + 1) * b->each);
    }
    pad(b, packed * b->each, padded(b));
}

/* Derives the whole sequence's mask of a narrower window from the widest one (`lo`). */
static void narrow(const struct batch *b, const int32_t *lo, int64_t window, int32_t *out)
{
    for (int64_t i = 0; i < b->shape.padded; i++)
        out[i] = (int32_t)max_i64(lo[i], window > 0 ? i - window + 1 : 0);
}

/* Copies this rank's rows of the residual stream out of all of its rows, numbers of four bytes: all or, between slices, its share of
 * every row chunk, so that the slices' shares of a chunk follow each other. */
static void share_rows(const struct batch *b, const void *rows, void *own)
{
    const struct strategy *s = &b->s->plan->strategy;
    const int slices = mesh_degree(&s->key.mesh, MESH_TP);
    for (int64_t first = 0; first < s->rows; first += s->key.row_chunk) {
        const int64_t share = min_i64(s->key.row_chunk, s->rows - first) / slices;
        memcpy((int32_t *)own + first / slices, (const int32_t *)rows + first + b->tp * share, (size_t)share * sizeof(int32_t));
    }
}

/* Returns the number of this rank's rows of the residual stream. */
static int64_t stream_rows(const struct batch *b)
{
    const struct strategy *s = &b->s->plan->strategy;
    return s->rows / mesh_degree(&s->key.mesh, MESH_TP);
}

/* Publishes this rank's rows of the residual stream. */
static void gather_stream(const struct batch *b, const int32_t *whole, int32_t *own)
{
    const int slices = mesh_degree(&b->s->plan->strategy.key.mesh, MESH_TP);
    seq_gather(b->layout, b->ring, b->ulysses, whole, slices > 1 ? b->rows : own);
    if (slices > 1)
        share_rows(b, b->rows, own);
}

/* Copies the positions of this rank's rows of the stream out of those of all of its rows. */
static void publish_own_positions(const struct batch *b)
{
    const struct io_buffers *io = &b->s->plan->io;
    if (io->own_positions >= 0)
        share_rows(b, session_io(b->s, io->positions), session_io(b->s, io->own_positions));
}

/* Copies the numbers of the head's rows out of those of this rank's tokens. */
static void publish_end_numbers(const struct batch *b)
{
    const struct io_buffers *io = &b->s->plan->io;
    if (io->end_numbers >= 0)
        share_rows(b, session_io(b->s, io->numbers), session_io(b->s, io->end_numbers));
}

/* Publishes each token's number in the whole sequence, by which dropout masks are drawn. whole: scratch for the numbers of all
 * tokens. */
static void publish_numbers(struct batch *b, int32_t *whole)
{
    const struct io_buffers *io = &b->s->plan->io;
    int32_t *own = io->numbers >= 0 ? session_io(b->s, io->numbers) : NULL, *all = b->memory ? whole : own;
    for (int64_t i = 0; own && i < b->shape.padded; i++)
        all[i] = (int32_t)i;
    if (own && b->memory)
        seq_gather(b->layout, b->ring, b->ulysses, all, own);
    publish_end_numbers(b);
}

/* Publishes where rows of tokens stand that are trained by themselves, for this rank's n rows of the stream. */
static void publish_rows(struct batch *b, int64_t n)
{
    const struct model *m = b->s->model;
    const struct io_buffers *io = &b->s->plan->io;
    const int32_t *tokens = session_io(b->s, io->tokens);
    int32_t *slots = io->slots >= 0 ? session_io(b->s, io->slots) : NULL;
    for (int64_t i = 0; slots && i < n; i++)
        slots[i] = tokens[i] >= 0 && tokens[i] < m->config.vocab ? b->slot[tokens[i]] : -1;
    if (io->columns >= 0)
        memcpy(session_io(b->s, io->columns), b->column, (size_t)m->params[m->head_rows].shape[0] * sizeof *b->column);
}

/* Publishes this rank's part of one mask. */
static void publish_mask(struct batch *b, int mask, const int32_t *lo)
{
    const struct io_buffers *io = &b->s->plan->io;
    int ring = b->shape.ring;
    seq_member_masks(b->layout, lo, b->ring, session_io(b->s, io->lo[mask]), session_io(b->s, io->hi[mask]));
    if (ring == 1)
        return;
    /* `last`: the last predicate of the mask before, whose place seq_predicates overwrites */
    uint8_t *bits = b->s->predicates + mask * (2 * ring - 2), last = bits[0];
    seq_needs(b->layout, lo, b->needs);
    seq_predicates(ring, b->needs, b->ring, bits);
    bits[0] = mask > 0 ? last : 1;
}

/* Turns positions into rows of the table of learned positions. In some models' tables the first rows belong to no position. */
static void shift_positions(const struct batch *b, int32_t *positions)
{
    const int32_t first = model_first_position(&b->s->model->config);
    const int64_t rows = b->shape.padded / mesh_sharing(&b->s->plan->strategy.key.mesh);
    for (int64_t i = 0; first > 0 && i < rows; i++)
        positions[i] += first;
}

/* Returns the link of a token of the micro-batch to the one before it. A document goes on where positions do. */
static int32_t link_of(const struct batch *b, int64_t i)
{
    const int32_t *positions = b->whole.positions;
    const int64_t n = i / b->each, at = i % b->each;
    if (n >= b->s->plan->strategy.key.packed || at >= b->used[n])
        return ROW_NONE;
    return at > 0 && positions[i] == positions[i - 1] + 1 ? ROW_FOLLOWS : ROW_BEGINS;
}

/* Publishes each row's link to the row before it. whole: scratch for the links of all tokens. */
static void publish_links(struct batch *b, int32_t *whole)
{
    const struct io_buffers *io = &b->s->plan->io;
    int32_t *links = io->links >= 0 ? session_io(b->s, io->links) : NULL, *all = b->memory ? whole : links;
    for (int64_t i = 0; links && i < b->shape.padded; i++)
        all[i] = link_of(b, i);
    if (links && b->memory)
        seq_gather(b->layout, b->ring, b->ulysses, all, links);
    if (io->order >= 0)
        seq_piece_order(b->layout, b->ring, b->ulysses, session_io(b->s, io->order));
}

/* Copies this rank's weights out of the whole sequence's. */
static void gather_weights(const struct batch *b, float *own)
{
    const int64_t n = b->shape.padded / mesh_sharing(&b->s->plan->strategy.key.mesh);
    for (int64_t i = 0; i < n; i++)
        own[i] = b->weights[batch_token(b, i)];
}

/* Returns a digest of the borders of the documents. */
static uint64_t digest_of(const struct batch *b)
{
    uint64_t digest = 0;
    for (int64_t i = 0; i < padded(b); i++)
        digest = (digest ^ (uint64_t)b->whole.lo[i]) * 0x9e3779b97f4a7c15u;
    return digest;
}

void batch_take_slice(struct batch *b, int64_t slice)
{
    const struct model *m = b->s->model;
    const struct io_buffers *io = &b->s->plan->io;
    const int64_t n = b->shape.padded, rows = b->s->plan->strategy.rows, first = slice * n, own = first + b->ulysses * rows;
    int32_t *const index = session_io(b->s, io->index), *const numbers = io->numbers >= 0 ? session_io(b->s, io->numbers) : NULL,
                   *const links = io->links >= 0 ? session_io(b->s, io->links) : NULL;
    const struct sequence in = inputs(b->s);
    b->first_token = first;
    b->first_row = 0;
    share_rows(b, b->whole.tokens + own, in.tokens);
    share_rows(b, b->whole.targets + own, in.targets);
    if (m->pos_embed >= 0)
        share_rows(b, b->whole.positions + own, in.positions);
    else
        memcpy(in.positions, b->whole.positions + own, (size_t)rows * sizeof *in.positions);
    if (in.weights)
        share_rows(b, b->weights + own, in.weights);
    publish_rows(b, stream_rows(b));
    publish_own_positions(b);
    shift_positions(b, in.positions);
    for (int64_t i = 0; i < n; i++)
        index[i] = (int32_t)(first + i);
    for (int64_t i = 0; numbers && i < rows; i++)
        numbers[i] = (int32_t)(own + i);
    publish_end_numbers(b);
    for (int64_t i = 0; links && i < rows; i++)
        links[i] = link_of(b, own + i);
    for (int k = 0; k < m->n_masks; k++) {
        int32_t *const lo = session_io(b->s, io->lo[k]), *const hi = session_io(b->s, io->hi[k]);
        const int64_t window = m->mask_window[k];
        for (int64_t i = 0; i < n; i++) {
            lo[i] = (int32_t)max_i64(b->whole.lo[first + i], window > 0 ? first + i - window + 1 : 0);
            hi[i] = (int32_t)(first + i);
        }
    }
}

enum status batch_publish(struct batch *b, int64_t n)
{
    const struct seq_tokens t = {b->whole.tokens, b->whole.targets, b->whole.positions, b->whole.lo};
    const struct model *m = b->s->model;
    const struct io_buffers *io = &b->s->plan->io;
    struct sequence in = inputs(b->s);
    pad_all(b, n);
    b->first_token = b->first_row = 0;
    if (b->slices > 1) {
        b->digest = digest_of(b);
        batch_take_slice(b, 0);
        return OK;
    }
    TRY(seq_layout_assign(b->layout, t.lo));
    publish_links(b, b->whole.hi); /* the whole sequence's hi, which nobody reads, is scratch here */
    if (!b->memory) {              /* the arrays are the program's inputs already */
        for (int k = 1; k < m->n_masks; k++) {
            narrow(b, t.lo, m->mask_window[k], session_io(b->s, io->lo[k]));
            memcpy(session_io(b->s, io->hi[k]), in.hi, (size_t)b->shape.padded * sizeof *in.hi);
        }
        publish_numbers(b, NULL);
        publish_rows(b, b->s->plan->strategy.rows);
        shift_positions(b, in.positions);
        return OK;
    }
    gather_stream(b, t.tokens, in.tokens);
    gather_stream(b, t.targets, in.targets);
    if (m->pos_embed >= 0)
        gather_stream(b, t.positions, in.positions);
    else
        seq_gather(b->layout, b->ring, b->ulysses, t.positions, in.positions);
    if (in.weights)
        gather_weights(b, in.weights);
    publish_own_positions(b);
    shift_positions(b, in.positions);
    publish_mask(b, 0, t.lo);
    for (int k = 1; k < m->n_masks; k++) {
        narrow(b, t.lo, m->mask_window[k], t.lo); /* overwrites the wider mask, which nobody reads any more */
        publish_mask(b, k, t.lo);
    }
    publish_numbers(b, t.positions);
    publish_rows(b, stream_rows(b));
    return OK;
}

/* Returns the row, among all of this rank's tokens, of row i of its targets: between slices each has only its share of them. */
static int64_t row_of_target(const struct batch *b, int64_t i)
{
    const struct strategy *s = &b->s->plan->strategy;
    const int64_t chunk = s->key.row_chunk / mesh_degree(&s->key.mesh, MESH_TP);
    if (chunk == s->key.row_chunk)
        return i;
    const int64_t first = i / chunk * s->key.row_chunk,
                  share = min_i64(s->key.row_chunk, s->rows - first) * chunk / s->key.row_chunk;
    return first + b->tp * share + i % chunk;
}

int64_t batch_targets(const struct batch *b)
{
    const struct strategy *s = &b->s->plan->strategy;
    return strategy_end_rows(s) / mesh_degree(&s->key.mesh, MESH_TP);
}

int64_t batch_position(const struct batch *b, int64_t i)
{
    const int stages = strategy_stages(&b->s->plan->strategy);
    return b->s->model->pos_embed >= 0 || stages > 1 ? i : row_of_target(b, i);
}

int64_t batch_token(const struct batch *b, int64_t i)
{
    const int64_t row = row_of_target(b, b->first_row + i);
    return b->first_token + seq_token_of(b->layout, b->ring, b->ulysses * seq_rank_rows(&b->shape) + row);
}

void batch_take_share(struct batch *b)
{
    const int64_t rows = stream_rows(b), share = batch_targets(b),
                  first = min_i64(rows, comm_member(b->s->comm, LANE_PP) * share), n = min_i64(share, rows - first);
    const struct sequence in = inputs(b->s);
    int32_t *const numbers = b->s->plan->io.end_numbers >= 0 ? session_io(b->s, b->s->plan->io.end_numbers) : NULL;
    b->first_row = first;
    memmove(in.tokens, in.tokens + first, (size_t)n * sizeof *in.tokens);
    memmove(in.targets, in.targets + first, (size_t)n * sizeof *in.targets);
    for (int64_t i = 0; i < n; i++)
        in.positions[i] = in.positions[b->s->model->pos_embed >= 0 ? first + i : row_of_target(b, first + i)];
    if (in.weights)
        memmove(in.weights, in.weights + first, (size_t)n * sizeof *in.weights);
    if (numbers)
        memmove(numbers, numbers + first, (size_t)n * sizeof *numbers);
    for (int64_t i = n; i < share; i++) { /* rows that are no one's */
        in.tokens[i] = in.positions[i] = 0;
        in.targets[i] = -1;
    }
    publish_rows(b, share);
}

uint64_t batch_digest(const struct batch *b)
{
    return b->slices > 1 ? b->digest : seq_layout_digest(b->layout);
}
