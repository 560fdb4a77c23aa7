/* Tile grids, which are part of the numerics key: the default one, and alternatives. */
#include "plan/lower/grid.h"

#include "base/blocks8.h"
#include "plan/lower/heads.h"

#include <stdio.h>
#include <string.h>

#define RULE_SHORTEST 2048 /* shortest row chunk by rule; shorter ones are taken only to fit */
/* Rows of a chunk that an expert should have in the mean: fewer make slow products and gradients of matrices. */
enum { EXPERT_ROWS_CPU = 128, EXPERT_ROWS_GPU = 512 };

/* Returns the shortest row chunk by rule. */
static int64_t shortest_by_rule(const struct model *m, const struct plan_request *s)
{
    const struct model_config *c = &m->config;
    const int64_t rows = s->target->capability > 0 ? EXPERT_ROWS_GPU : EXPERT_ROWS_CPU;
    return c->experts == 0 ? RULE_SHORTEST : max_i64(RULE_SHORTEST, round_up(ceil_div(rows * c->experts, c->experts_used), 1024));
}

/* Tells whether tiles of that number of query heads are legal in at least some layers. Other layers take the next lower legal
 * number. */
static int head_tile_legal(const struct model *m, const struct strategy *t, int64_t heads)
{
    int legal = m->n_shapes == 0 && heads == 1;
    for (int i = 0; i < m->n_shapes; i++)
        legal |= heads_tile_legal(&m->shapes[i], &t->key.mesh, heads);
    return legal;
}

/* Makes the error of a head tile that is not legal, with the legal values in its sentence. */
static enum status refuse_head_tile(const struct model *m, int64_t asked, const struct strategy *t)
{
    char legal[256] = "", heads[64];
    if (m->n_shapes == 0)
        return status_fail(ERR_INVALID, "--tiles: heads=%lld: no layer of the model has attention: take heads=1, or leave it out",
                           (long long)asked);
    const struct head_tiles first = heads_cut(&m->shapes[0], &t->key.mesh, 1);
    int64_t last = 0;
    for (int64_t n = 1; n <= model_most_heads(m); n++) {
        size_t at = strlen(legal);
        if (!head_tile_legal(m, t, n))
            continue;
        if (last)
            snprintf(legal + at, sizeof legal - at, "%s%lld", at ? ", " : "", (long long)last);
        last = n;
    }
    snprintf(heads, sizeof heads, "%d query heads on %d KV heads", first.heads, first.kv_heads);
    return status_fail(ERR_INVALID, "--tiles: heads=%lld does not fit %s%s: take %s%s%lld", (long long)asked,
                       m->n_shapes > 1 ? "the heads of any layer" : heads,
                       t->key.mesh.degree[MESH_ULYSSES] > 1 ? " of a rank" : "", legal, legal[0] ? " or " : "", (long long)last);
}

/* Most pieces (row chunks times head tiles) of a layer and of a model, since finer grids take too long to plan; a grid from the
 * user may take a minute. SHORTEST_*: fewest rows. */
enum { MOST_PIECES = 1024, MOST_OF_MODEL = 1 << 17, SHORTEST_CHUNK = 64, SHORTEST_LOSS = 128 };

/* Returns the tiles of query heads of one layer for each row chunk. */
static int64_t head_pieces(const struct model *m, const struct strategy *t, int shape)
{
    return heads_cut(&m->shapes[shape], &t->key.mesh, t->key.head_tile).n_q;
}

/* Returns the tiles of query heads of all layers for each row chunk. */
static int64_t pieces_a_chunk(const struct model *m, const struct strategy *t)
{
    int64_t n = 0;
    for (int i = 0; i < m->n_kinds; i++) {
        const struct attention_block *a = model_attention(m, m->kinds[i].first);
        n += m->kinds[i].layers * (a ? head_pieces(m, t, a->shape) : 1);
    }
    return n;
}

/* Returns the pieces of the layer that has the most pieces. */
static int64_t most_of_layer(const struct model *m, const struct strategy *t)
{
    int64_t most = 1;
    for (int i = 0; i < m->n_shapes; i++)
        most = max_i64(most, head_pieces(m, t, i));
    return ceil_div(t->rows, t->key.row_chunk) * most;
}

int64_t plan_pieces(const struct model *m, const struct strategy *t)
{
    return ceil_div(t->rows, t->key.row_chunk) * pieces_a_chunk(m, t);
}

/* Returns the limit of pieces for given grids. It admits every finer grid that the planner takes by itself. */
static int64_t most_pieces(const struct model_config *c)
{
    return max_i64(MOST_OF_MODEL, c->layers * MOST_PIECES);
}

static enum status check_pieces(const struct model *m, const struct strategy *t)
{
    const struct model_config *c = &m->config;
    int64_t n = plan_pieces(m, t), most = most_pieces(c);
    if (n <= most)
        return OK;
    int64_t chunks = max_i64(1, most / pieces_a_chunk(m, t));
    return status_fail(
        ERR_INVALID,
        "--tiles: rows=%lld,heads=%d cut the attention of %lld layers into %lld pieces, and more than %lld take minutes "
        "to plan: take rows=%lld or more",
        (long long)t->key.row_chunk, t->key.head_tile, (long long)c->layers, (long long)n, (long long)most,
        (long long)round_up(ceil_div(t->rows, chunks), SHORTEST_CHUNK));
}

/* Returns the elements of a group: at most 128 groups in the largest unit, and between many ranks messages that are not too
 * short. */
static int64_t default_group(const struct model *m, int ranks)
{
    int64_t most = 0, group = 1 << 20;
    for (int u = 0; u < m->n_units; u++)
        most = max_i64(most, max_i64(m->units[u].elements, m->units[u].packed_bytes / dtype_size(F32)));
    while (group * 128 < most || group < (int64_t)ranks << 14)
        group *= 2;
    return group;
}

/* Sets head tiles to the i-th legal number of heads above the present one. Returns 0 if there is none. */
static int wider_heads(const struct model *m, int i, struct strategy *t)
{
    for (int64_t heads = t->key.head_tile + 1; heads <= model_most_heads(m); heads++)
        if (head_tile_legal(m, t, heads) && i-- == 0) {
            t->key.head_tile = (int)heads;
            return 1;
        }
    return 0;
}

/* Tells whether chunks of that many rows end where pieces of the sequence do, and slices of layers can share them. */
static int rows_are_legal(const struct strategy *t, int64_t rows)
{
    return (t->piece == 0 || t->piece % rows == 0) && rows % mesh_degree(&t->key.mesh, MESH_TP) == 0;
}

/* Sets the row chunk that is asked for, or the longest below it that is legal. */
static enum status set_row_chunk(const struct model *m, const struct plan_request *s, int64_t asked, struct strategy *t)
{
    int64_t rows = min_i64(asked, t->piece > 0 ? t->piece : t->rows);
    while (!rows_are_legal(t, rows))
        rows--;
    t->key.row_chunk = rows;
    if (t->piece == 0 || (rows >= model_least_piece(m) && (s->row_chunk <= 0 || rows == min_i64(asked, t->piece))))
        return OK;
    rows = max_i64(rows, model_least_piece(m));
    while (!rows_are_legal(t, rows))
        rows++;
    return status_fail(
        ERR_INVALID,
        "--tiles: rows=%lld do not divide the %lld consecutive tokens that ranks of this mesh hold, or are too few "
        "for the model's convolutions: take rows=%lld",
        (long long)asked, (long long)t->piece, (long long)rows);
}

/* Makes the sizes that the settings leave open coarser until there are few enough pieces: row chunks first, as long as 16 remain. */
static void limit_pieces(const struct model *m, const struct plan_request *s, struct strategy *t)
{
    while (plan_pieces(m, t) > most_pieces(&m->config)) {
        int rows_open =
            s->row_chunk <= 0 && t->key.row_chunk < t->rows && rows_are_legal(t, min_i64(2 * t->key.row_chunk, t->rows));
        if (rows_open && t->rows > 16 * t->key.row_chunk)
            t->key.row_chunk *= 2;
        else if (s->head_tile > 0 || !wider_heads(m, 0, t)) {
            if (!rows_open)
                return;
            t->key.row_chunk = min_i64(2 * t->key.row_chunk, t->rows);
        }
    }
}

/* Makes the error of a loss tile that does not divide the row chunk, with the nearest legal values in its sentence. */
static enum status refuse_loss_tile(int64_t asked, int rows_given, const struct strategy *t)
{
    int64_t less = asked, more = asked;
    while (strategy_stream_chunk(t) % less)
        less--;
    while (strategy_stream_chunk(t) % more)
        more++;
    return status_fail(ERR_INVALID,
                       "--tiles: loss=%lld does not divide the %lld rows of a chunk%s: take loss=%lld or loss=%lld%s",
                       (long long)asked, (long long)strategy_stream_chunk(t), rows_given ? "" : ", which no option gives",
                       (long long)less, (long long)more, rows_given ? "" : ", or give rows=N, too");
}

/* Returns the default number of heads in a tile. Wide tiles make better matrix products; beyond 65536 tokens memory counts more. */
static int64_t default_heads(const struct attention_shape *shape, const struct plan_request *s, const struct strategy *t)
{
    const struct head_tiles h = heads_cut(shape, &t->key.mesh, 1);
    int64_t n = h.heads / h.kv_heads;
    while (s->seq_len <= 65536 && n * h.dim < 512 && 2 * n <= h.heads && heads_tile_legal(shape, &t->key.mesh, 2 * n))
        n *= 2;
    return n;
}

enum status plan_tiles(const struct model *m, const struct plan_request *s, struct strategy *out)
{
    const struct model_config *c = &m->config;
    TRY(set_row_chunk(m, s, s->row_chunk > 0 ? s->row_chunk : max_i64(shortest_by_rule(m, s), round_up(out->rows / 64, 1024)),
                      out));
    if (s->head_tile > 0 && !head_tile_legal(m, out, s->head_tile))
        return refuse_head_tile(m, s->head_tile, out);
    int64_t heads = max_i64(s->head_tile, 1);
    for (int i = 0; i < m->n_shapes && s->head_tile <= 0; i++)
        heads = max_i64(heads, default_heads(&m->shapes[i], s, out));
    out->key.head_tile = (int)heads;
    limit_pieces(m, s, out);
    TRY(check_pieces(m, out));
    const int64_t chunk = strategy_stream_chunk(out);
    int64_t loss = s->loss_tile > 0 ? min_i64(s->loss_tile, chunk) : chunk;
    if (s->loss_tile > 0 && out->key.row_chunk < out->rows && chunk % loss)
        return refuse_loss_tile(loss, s->row_chunk > 0, out);
    /* limit of the logits in fp32: a quarter of the residual stream, which is there in any case */
    int64_t logits = max_i64(64 << 20, out->rows * c->dim * dtype_size(s->dtype) / 4);
    while (s->loss_tile <= 0 && loss * c->vocab * 4 > logits && loss % 2 == 0)
        loss /= 2;
    out->key.loss_tile = loss;
    if (s->group % BLOCK8 != 0 && s->group > 0 && s->optim_dtype == I8)
        return status_fail(ERR_INVALID, "--tiles: group=%lld cuts blocks of moments in int8: take a multiple of %d",
                           (long long)s->group, BLOCK8);
    out->key.group = s->group > 0 ? s->group : default_group(m, out->ranks);
    return OK;
}

/* Sets row chunks twice as long (i = 0) or half as long (1). Returns 0 if that is not legal: the loss tile must divide the new
 * length, unless one chunk has all rows. */
static int other_rows(const struct model *m, const struct plan_request *s, int i, struct strategy *t)
{
    int64_t other = i == 0 ? min_i64(2 * t->key.row_chunk, t->rows) : t->key.row_chunk / 2;
    if (i > 1 || other == t->key.row_chunk || t->key.row_chunk % 2 || !rows_are_legal(t, other) ||
        other < shortest_by_rule(m, s) ||
        (s->loss_tile > 0 && other < t->rows && other / mesh_degree(&t->key.mesh, MESH_TP) % s->loss_tile))
        return 0;
    t->key.row_chunk = other;
    t->key.loss_tile = min_i64(t->key.loss_tile, strategy_stream_chunk(t));
    return (other == t->rows || strategy_stream_chunk(t) % t->key.loss_tile == 0) && most_of_layer(m, t) <= MOST_PIECES;
}

/* Sets loss tiles 2, 4 or 8 times as long. Returns 0 if that is not legal. */
static int longer_loss(int i, struct strategy *t)
{
    int64_t other = t->key.loss_tile << (i + 1);
    if (i > 2 || other > strategy_stream_chunk(t) || strategy_stream_chunk(t) % other)
        return 0;
    t->key.loss_tile = other;
    return 1;
}

int plan_other_tiles(const struct model *m, const struct plan_request *s, enum tile_size which, int i, struct strategy *t)
{
    switch (which) {
    case TILE_HEADS:
        return s->head_tile <= 0 && wider_heads(m, i, t);
    case TILE_ROWS:
        return s->row_chunk <= 0 && other_rows(m, s, i, t);
    default:
        return s->loss_tile <= 0 && longer_loss(i, t);
    }
}

/* Sets the next lower legal number of heads. Returns 0 if there is none. */
static int narrower_heads(const struct model *m, struct strategy *t)
{
    int64_t heads = t->key.head_tile - 1;
    while (heads > 0 && !head_tile_legal(m, t, heads))
        heads--;
    if (heads > 0)
        t->key.head_tile = (int)heads;
    return heads > 0 && most_of_layer(m, t) <= MOST_PIECES;
}

/* Sets loss tiles half or a quarter as long. Returns 0 if that is not legal. */
static int shorter_loss(int i, struct strategy *t)
{
    int64_t other = t->key.loss_tile >> (i + 1);
    if (other << (i + 1) != t->key.loss_tile || other < SHORTEST_LOSS)
        return 0;
    t->key.loss_tile = other;
    return 1;
}

int plan_near_tiles(const struct model *m, const struct plan_request *s, int i, struct strategy *t)
{
    enum { ROWS = 1, LOSS = 3, HEADS_BACK = 5, LOSS_BACK = 6 };
    if (i < ROWS)
        return plan_other_tiles(m, s, TILE_HEADS, i, t);
    if (i < LOSS)
        return plan_other_tiles(m, s, TILE_ROWS, i - ROWS, t);
    if (i < HEADS_BACK)
        return plan_other_tiles(m, s, TILE_LOSS, i - LOSS, t);
    if (i < LOSS_BACK)
        return s->head_tile <= 0 && narrower_heads(m, t);
    return s->loss_tile <= 0 && shorter_loss(i - LOSS_BACK, t);
}

int plan_coarser_tiles(const struct model *m, const struct plan_request *s, struct strategy *t)
{
    int coarser = 0;
    for (int which = 0; which < TILE_SIZES; which++)
        coarser |= plan_other_tiles(m, s, (enum tile_size)which, 0, t);
    return coarser;
}

int plan_finer_tiles(const struct model *m, const struct plan_request *s, struct strategy *t)
{
    struct strategy next = *t;
    int finer = 0;
    if (s->head_tile <= 0 && narrower_heads(m, &next)) {
        t->key.head_tile = next.key.head_tile;
        finer = 1;
    }
    next = *t;
    next.key.row_chunk /= 2;
    if (s->row_chunk > 0 || t->key.row_chunk % 2 || next.key.row_chunk < SHORTEST_CHUNK ||
        !rows_are_legal(t, next.key.row_chunk) || (s->loss_tile > 0 && strategy_stream_chunk(&next) % t->key.loss_tile) ||
        most_of_layer(m, &next) > MOST_PIECES)
        return finer;
    t->key.row_chunk = next.key.row_chunk;
    t->key.loss_tile = min_i64(t->key.loss_tile, strategy_stream_chunk(t));
    return 1;
}
