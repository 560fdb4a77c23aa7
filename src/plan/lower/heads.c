#include "plan/lower/heads.h"

/* Heads and KV heads of one rank; each KV head serves `group` heads. */
struct local_heads {
    int64_t heads, kv_heads, group;
};

static struct local_heads local_heads(const struct attention_shape *shape, const struct mesh *mesh)
{
    struct local_heads l = {.heads = shape->heads / mesh->degree[MESH_ULYSSES],
                            .kv_heads = max_i64(1, shape->kv_heads / mesh->degree[MESH_ULYSSES])};
    l.group = l.heads / l.kv_heads;
    return l;
}

static int is_legal(const struct local_heads *l, int64_t tile, int ring)
{
    if (tile <= 0 || tile > l->heads)
        return 0;
    return tile >= l->group ? tile % l->group == 0 && l->kv_heads % (tile / l->group) == 0 : ring == 1 && l->group % tile == 0;
}

int heads_tile_legal(const struct attention_shape *shape, const struct mesh *mesh, int64_t tile)
{
    const struct local_heads l = local_heads(shape, mesh);
    return is_legal(&l, tile, mesh->degree[MESH_RING]);
}

struct head_tiles heads_cut(const struct attention_shape *shape, const struct mesh *mesh, int64_t tile)
{
    const struct local_heads l = local_heads(shape, mesh);
    int64_t q = min_i64(tile, l.heads);
    while (q > 0 && !is_legal(&l, q, mesh->degree[MESH_RING]))
        q--;
    if (q == 0)
        q = mesh->degree[MESH_RING] > 1 ? l.group : 1;
    struct head_tiles t = {.dim = shape->head_dim,
                           .value = shape->value_dim,
                           .all = shape->heads,
                           .all_kv = shape->kv_heads,
                           .heads = (int)l.heads,
                           .kv_heads = (int)l.kv_heads,
                           .q = (int)q,
                           .kv = (int)max_i64(1, q / l.group)};
    t.n_q = t.heads / t.q;
    t.n_kv = t.kv_heads / t.kv;
    t.q_per_kv = t.n_q / t.n_kv;
    return t;
}

int heads_send_latents(const struct attention_block *w, const struct mesh *mesh)
{
    return w->kv_a.weight >= 0 && w->k.rank == 0 && mesh->degree[MESH_RING] > 1 && mesh->degree[MESH_ULYSSES] == 1 &&
           mesh_degree(mesh, MESH_TP) == 1;
}

int64_t heads_latent(const struct model *m, const struct attention_block *w)
{
    const struct attention_shape *s = &m->shapes[w->shape];
    return s->kv_latent > 0 && w->k.rank == 0 ? s->kv_latent + s->rotated : 0;
}
