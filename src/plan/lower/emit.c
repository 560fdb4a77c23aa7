/* Instructions and their arguments, over the tiles of values. */
#include "plan/lower/emit.h"

#include "plan/lower/lowering.h"

struct op_attrs *emit(struct lowering *L, enum op_kind op, enum lane lane)
{
    int i = program_add_instr(L->p, op, lane);
    if (L->p->excess > EXCESS_BYTES && L->st == OK)
        L->st = ERR_NOFIT; /* an early end: the remaining instructions would take long */
    if (lane == LANE_COMPUTE && L->s.target->capability > 0 && !op_runs_on_gpus(op) && L->st == OK)
        L->st = status_fail(ERR_INVALID, "--model %s needs the op %s, for which GPUs have no kernel: --device cpu computes it",
                            L->m->config.name, op_name(op));
    L->p->instrs[i].phase = (uint8_t)L->phase;
    L->p->instrs[i].unit = (int16_t)L->unit;
    L->p->instrs[i].predicate = (int16_t)L->predicate;
    return &program_call(L->p, &L->p->instrs[i])->attrs;
}

static struct tile_part part_of(const struct value *v, const struct tile *t, int64_t row0, int64_t row1, int place)
{
    int64_t a = max_i64(row0, t->row0), b = min_i64(row1, t->row1);
    return (struct tile_part){t->place[place].buffer, t->version, t->place[place].offset + (a - t->row0) * v->row_bytes, a, b};
}

static void add_part(struct lowering *L, int arg, enum access access, const struct value *v, const struct tile_part *x, int place)
{
    if (x->buffer < 0 && L->st == OK)
        L->st = status_fail(ERR_CORRUPT, "planner: %s of %s (rows %lld to %lld, unit %d, phase %c) has no copy in %s",
                            op_name(L->p->instrs[L->p->n_instrs - 1].op), L->p->tensors[v->tensor].name, (long long)x->row0,
                            (long long)x->row1, L->unit, phase_letter(L->phase),
                            place < TIERS ? tier_name((enum tier)place) : "keep");
    if (L->st == OK)
        program_add_operand(L->p, (struct operand){.arg = (uint32_t)arg,
                                                   .access = access,
                                                   .buffer = x->buffer,
                                                   .tensor = v->tensor,
                                                   .offset = x->offset,
                                                   .bytes = (x->row1 - x->row0) * v->row_bytes,
                                                   .row0 = x->row0,
                                                   .version = (uint32_t)(x->version + (access == ACCESS_WRITE))});
}

/* Raises the version of tiles [first, end), which are written in one place, and forgets their other copies. */
static void note_written(struct value *v, int first, int end, int place)
{
    v->changes++;
    for (int i = first; i < end; i++) {
        v->tiles[i].version++;
        for (int k = 0; k < PLACES; k++)
            if (k != place)
                v->tiles[i].place[k] = NOWHERE;
    }
}

/* Appends the operands of rows [row0, row1). Adjacent tiles of a buffer become one operand: most arguments have many tiles
 * (groups of a matrix, chunks of a full value). Returns the last operand: the only one if it has all rows. */
static struct tile_part arg_rows(struct lowering *L, int arg, enum access access, struct value *v, int64_t row0, int64_t row1,
                                 int place)
{
    const int first = value_tile_at(v, row0);
    if (first >= v->n_tiles || v->tiles[first].row0 >= row1)
        return (struct tile_part){.buffer = -1};
    struct tile_part all = part_of(v, &v->tiles[first], row0, row1, place);
    const struct tile *t = &v->tiles[first + 1], *end = &v->tiles[v->n_tiles];
    int64_t next = all.offset + (all.row1 - all.row0) * v->row_bytes; /* offset at which the operand goes on */
    /* versions of the operands are those before the write */
    for (; t < end && t->row0 < row1; t++) {
        const struct place *at = &t->place[place];
        const int64_t last = t->row1 < row1 ? t->row1 : row1;
        if (at->buffer != all.buffer || t->version != all.version || at->offset != next) {
            add_part(L, arg, access, v, &all, place);
            all = (struct tile_part){at->buffer, t->version, at->offset, t->row0, last};
            next = at->offset;
        }
        all.row1 = last;
        next += (last - t->row0) * v->row_bytes;
    }
    add_part(L, arg, access, v, &all, place);
    if (access & ACCESS_WRITE)
        note_written(v, first, (int)(t - v->tiles), place);
    return all;
}

void arg_read(struct lowering *L, int arg, struct value *v, int64_t row0, int64_t row1, int place)
{
    arg_rows(L, arg, ACCESS_READ, v, row0, row1, place);
}

void arg_read_again(struct lowering *L, int arg, struct value *v, int64_t row0, int64_t row1, struct last_read *last)
{
    if (last->changes != v->changes || last->all.row0 != row0 || last->all.row1 != row1)
        *last = (struct last_read){v->changes, arg_rows(L, arg, ACCESS_READ, v, row0, row1, TIER_DEVICE)};
    else
        add_part(L, arg, ACCESS_READ, v, &last->all, TIER_DEVICE);
}

void arg_write(struct lowering *L, int arg, struct value *v, int64_t row0, int64_t row1, int place)
{
    arg_rows(L, arg, ACCESS_WRITE, v, row0, row1, place);
}

void arg_update(struct lowering *L, int arg, struct value *v, int64_t row0, int64_t row1, int place)
{
    arg_rows(L, arg, ACCESS_UPDATE, v, row0, row1, place);
}

/* Appends an operand of device scratch memory; 0 bytes: no operand. */
static void arg_scratch(struct lowering *L, int arg, int64_t bytes)
{
    if (bytes <= 0 || L->st != OK)
        return;
    int b = buffer_new(L, TIER_DEVICE, bytes, CLASS_WORK);
    program_add_operand(
        L->p, (struct operand){.arg = (uint32_t)arg, .access = ACCESS_WRITE, .buffer = b, .tensor = -1, .bytes = bytes});
}

/* Returns the bytes that a rank sends to others. */
static int64_t comm_bytes(enum op_kind op, const struct op_attrs *a, int members)
{
    int64_t share = a->comm.share * a->comm.element, wire = dtype_size((enum dtype)a->comm.type);
    switch (op) {
    case OP_ALL_GATHER:
        return (members - 1) * share;
    case OP_REDUCE_SCATTER:
        return (members - 1) * a->comm.share * wire;
    case OP_ALL_REDUCE:
        return (members - 1) * (a->comm.share * wire + share);
    case OP_ALL_TO_ALL:
    case OP_DEAL: /* by the root; other members send nothing */
        return (members - 1) * share;
    case OP_COLLECT:
        return share;
    case OP_DISPATCH:
    case OP_RETURN:
        return share / members * (members - 1); /* if all experts have equally many rows */
    default:
        return a->comm.n * a->comm.element;
    }
}

/* Returns the bytes that a kernel touches: those of its operands, except that dequantising touches only some columns of a matrix,
 * and experts' rows seldom fill their room. */
static int64_t touched_bytes(const struct program *p, const struct instr *in, const struct op_attrs *a)
{
    int64_t bytes = 0;
    if (in->op == OP_EXPERTS_KEEP) /* chosen experts that are in no slot, if all are chosen equally often */
        return a->keep.rows * experts_keep_bytes(a) * (a->keep.experts - a->keep.slots) / a->keep.experts;
    if (in->op == OP_DEQUANTISE)
        return a->dequantise.rows * a->dequantise.cols * dtype_size((enum dtype)a->dequantise.y_type) +
               a->dequantise.rows * a->dequantise.cols / quantised_per_byte((enum quantised_form)a->dequantise.form);
    for (int k = 0; k < in->n_operands; k++) {
        const struct operand *o = &p->operands[in->first_operand + k];
        if (o->tensor >= 0)
            bytes += o->access == ACCESS_UPDATE ? 2 * o->bytes : o->bytes;
    }
    const int32_t padded = in->op == OP_GATED || in->op == OP_GATED_GRAD ? a->gated.padded
                           : in->op == OP_SPREAD                         ? a->spread.padded
                                                                         : 0;
    return padded > 0 ? bytes / padded * 100 : bytes;
}

void emit_done(struct lowering *L, double pairs)
{
    struct instr *in = &L->p->instrs[L->p->n_instrs - 1];
    struct op_call *c = program_call(L->p, in);
    int members = L->p->group_size[in->lane];
    arg_scratch(L, op_arg_count(in->op) - 1, L->s.target->workspace(L->s.target, in->op, &c->attrs, members));
    c->flops = op_flops(in->op, &c->attrs, pairs);
    c->bytes = lane_is_comm(in->lane) ? comm_bytes(in->op, &c->attrs, members)
               : in->op == OP_COPY    ? c->attrs.copy.bytes
                                      : touched_bytes(L->p, in, &c->attrs);
    program_share_call(L->p);
}
