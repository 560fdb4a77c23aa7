#include "plan/lower/decode.h"

#include "plan/lower/ends.h"
#include "plan/lower/layers.h"
#include "plan/lower/slots.h"
#include "plan/lower/visit.h"

/* Creates a persistent host buffer that the engine fills before a program, or reads after it. */
static int io_value(struct lowering *L, struct value *v, const char *name, int64_t rows, int64_t row_bytes)
{
    value_create(L, v, name, CLASS_IO, rows, row_bytes, rows, RES_HOST);
    home_create(L, v, -1, RES_HOST);
    return v->tiles ? v->tiles[0].home.buffer : 0;
}

/* Creates a persistent value of one tile on the device. */
static void device_value(struct lowering *L, struct value *v, const char *name, int64_t rows, int64_t row_bytes)
{
    value_create(L, v, name, CLASS_PARAM, rows, row_bytes, rows, RES_DEVICE);
    home_create_apart(L, v, RES_DEVICE);
}

/* Creates the slots of experts that are not on the device, and the tables that say what is in them. */
static void create_slots(struct lowering *L)
{
    static const char *const names[SLOT_PARTS] = {[SLOTS_TRAINED] = "", [SLOTS_FROZEN] = ".frozen", [SLOTS_PACKED] = ".packed"};
    for (int u = 0; u < L->m->n_units && L->st == OK; u++) {
        struct unit_values *v = &L->units[u];
        char name[48];
        if (L->s.expert_slots == 0 || !model_unit_has_experts(L->m, u) || unit_residency(L, u, CLASS_PARAM) == RES_DEVICE)
            continue;
        for (int part = 0; part < SLOT_PARTS && L->st == OK; part++) {
            const int64_t size = slots_size(L, u, (enum slot_part)part);
            if (size == 0)
                continue;
            snprintf(name, sizeof name, "unit%d.kept%s", u, names[part]);
            device_value(L, &v->kept[part], name, size, part == SLOTS_PACKED ? 1 : dtype_size(L->s.key.dtype));
            snprintf(name, sizeof name, "unit%d.table%s", u, names[part]);
            device_value(L, &v->kept_table[part], name, experts_keep_words(L->s.expert_slots), sizeof(int32_t));
        }
    }
}

static void bind_slots(struct lowering *L, int end)
{
    for (int u = 0; u < L->m->n_units; u++)
        for (int part = 0; part < SLOT_PARTS; part++) {
            value_bind(L, &L->units[u].kept[part], end);
            value_bind_as(L, &L->units[u].kept_table[part], BINDING_EXPERTS, u, end);
        }
}

void decode_create(struct lowering *L, struct io_buffers *io)
{
    int64_t n = L->s.input_rows, dim = L->m->config.dim, size = dtype_size(L->s.key.dtype);
    io->tokens = io_value(L, &L->tokens, "tokens", n, 4);
    io->positions = io_value(L, &L->positions, "positions", n, 4);
    io->index = io_value(L, &L->index, "index", n, 4);
    io->last_row = io_value(L, &L->last_row, "last_row", 1, 4);
    io->links = model_has_links(L->m) ? io_value(L, &L->links, "links", n, 4) : -1;
    for (int i = 0; i < L->m->n_masks; i++) {
        char name[MASK_NAME];
        int64_t rows = (1 + cached_slots(L->m, &L->s, i)) * L->mask_rows;
        io->lo[i] = io_value(L, &L->lo[i], mask_name(name, "lo", i), rows, 4);
        io->hi[i] = io_value(L, &L->hi[i], mask_name(name, "hi", i), rows, 4);
    }
    io->inv_freq = io_value(L, &L->inv_freq, "inv_freq", L->m->n_frequencies, 4);
    io->record =
        io_value(L, &L->record, "record", 1, sizeof(struct step_record)); /* sinks read from it which heads this rank has */
    io->logits = io_value(L, &L->logits, "logits", 1, lower_logits_ld(L) * 4);
    value_create(L, &L->last, "last", CLASS_WORK, 1, dim * size, 1, RES_NONE);
    value_create(L, &L->last_n, "last_n", CLASS_WORK, 1, dim * size, 1, RES_NONE);
    create_slots(L);
    L->p->predicates = cached_predicates(L->m, &L->s);
    if (L->st == OK)
        layers_cache_create(L);
}

static void bind_all(struct lowering *L, int end)
{
    units_bind(L, end);
    bind_slots(L, end);
    layers_cache_bind(L, end);
    if (end) {
        value_bind(L, &L->logits, 1);
        return;
    }
    value_bind(L, &L->tokens, 0);
    value_bind(L, &L->positions, 0);
    value_bind(L, &L->index, 0);
    value_bind(L, &L->last_row, 0);
    if (model_has_links(L->m))
        value_bind(L, &L->links, 0);
    for (int i = 0; i < L->m->n_masks; i++) {
        value_bind(L, &L->lo[i], 0);
        value_bind(L, &L->hi[i], 0);
    }
    value_bind(L, &L->inv_freq, 0);
    value_bind(L, &L->record, 0);
}

static void load_inputs(struct lowering *L)
{
    L->phase = PHASE_IO;
    L->unit = -1;
    value_get(L, &L->tokens, 0);
    value_get(L, &L->positions, 0);
    value_get(L, &L->index, 0);
    value_get(L, &L->last_row, 0);
    value_get(L, &L->record, 0);
    if (model_has_links(L->m))
        value_get(L, &L->links, 0);
    for (int i = 0; i < L->m->n_masks; i++) {
        value_get(L, &L->lo[i], 0);
        value_get(L, &L->hi[i], 0);
    }
    if (L->m->n_ropes > 0)
        value_get(L, &L->inv_freq, 0);
}

void decode_passes(struct lowering *L)
{
    bind_all(L, 0);
    load_inputs(L);
    lower_forward(L);
    if (L->st == OK)
        bind_all(L, 1);
}
