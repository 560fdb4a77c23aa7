/* Checking the content of every byte, and the order of accesses to it.
 *
 * The instructions are taken in program order, which every wait follows. The content of a byte is what instructions in this order
 * leave in it. It is the same in every run, because all conflicting accesses are ordered by happens-before (clocks.h) as in
 * program order.
 *
 * Invariants:
 *
 * 1. A cell names the last writer and, per lane, the latest reader since. Earlier accesses are covered: readers, because a lane
 * retires in order; the rest, because the last writer was itself checked against all accesses before it (check_order).
 *
 * 2. Instructions with predicates count as executed. A cell written by such an instruction holds its content only under that
 * predicate, which each reader must have too (check_content). An instruction that updates a cell leaves the cell's predicate as
 * it is, since an update that is left out would have added nothing (check_addends). */
#include "verify/verify.h"

#include "verify/byte_map.h"
#include "verify/clocks.h"
#include "verify/comm.h"
#include "verify/form.h"

#include <stdarg.h>
#include <string.h>

enum { UNWRITTEN = -2, SCRATCH = -1 }; /* values in place of a cell's tensor */

/* Contents of a segment's bytes, and who accessed them last. */
struct cell {
    int64_t origin; /* byte of the tensor at an address, less the address */
    int32_t tensor, version;
    int32_t source;                     /* operand that wrote the content, or -1 - index of the live-in binding */
    int32_t predicate;                  /* predicate under which the content holds; 0: always */
    int32_t writer_lane, writer_ticket; /* last writer; ticket 0: written before the program */
    int32_t reader[LANES];              /* ticket of the latest reader since the last write, of each lane; 0: none */
};

struct verifier {
    const struct program *p;
    struct footprint bytes;
    struct clocks clocks;
    /* the instruction being checked */
    int index;
    const struct instr *in;
};

static enum status reject(const struct verifier *v, int operand, const char *format, ...) __attribute__((format(printf, 3, 4)));

static enum status reject(const struct verifier *v, int operand, const char *format, ...)
{
    char cause[640];
    va_list args;
    va_start(args, format);
    vsnprintf(cause, sizeof cause, format, args);
    va_end(args);
    return status_fail(ERR_CORRUPT, "program %s: instruction %d (%s on %s, ticket %d), operand %d: %s", v->p->name, v->index,
                       op_name(v->in->op), lane_name(v->in->lane), v->in->ticket, operand - v->in->first_operand, cause);
}

/* Describes a segment's content in words, for messages. */
static const char *describe_content(const struct program *p, const struct cell *c, int64_t address, int64_t bytes, char *text,
                                    size_t size)
{
    if (c->tensor == UNWRITTEN)
        return "were never written";
    if (c->tensor == SCRATCH)
        return "hold scratch";
    const struct tensor *t = &p->tensors[c->tensor];
    int64_t at = address + c->origin;
    snprintf(text, size, "hold %s version %d rows %lld to %lld", t->name, c->version, (long long)(at / t->row_bytes),
             (long long)ceil_div(at + bytes, t->row_bytes));
    return text;
}

/* --- Content --- */

static int holds(const struct cell *c, int tensor, int version, int64_t origin)
{
    return c->tensor == tensor && c->version == version && c->origin == origin;
}

struct extent {
    int64_t begin, bytes;
};

/* Returns the bytes of a whole argument, all its segments together; on nvme they are one extent. */
static struct extent argument_extent(const struct program *p, const struct instr *in, int arg)
{
    struct extent e = {-1, 0};
    for (int i = in->first_operand; i < in->first_operand + in->n_operands; i++) {
        if (p->operands[i].arg != arg)
            continue;
        if (e.begin < 0)
            e.begin = operand_begin(p, &p->operands[i]);
        e.bytes += p->operands[i].bytes;
    }
    return e;
}

static struct extent binding_extent(const struct program *p, const struct binding *b)
{
    return (struct extent){p->buffers[b->buffer].address + b->extent_offset, b->extent_bytes};
}

/* Tells whether the segment was last written as a part of an nvme extent with exactly these ends. */
static int extent_matches(const struct verifier *v, const struct cell *c, struct extent e)
{
    const struct program *p = v->p;
    struct extent w = c->source >= 0 ? argument_extent(p, &p->instrs[v->clocks.by_ticket[c->writer_lane][c->writer_ticket - 1]],
                                                       p->operands[c->source].arg)
                                     : binding_extent(p, &p->live_in[-1 - c->source]);
    return w.begin == e.begin && w.bytes == e.bytes;
}

/* Tells whether all bytes of the nvme extent still belong to it; writing another extent over some would have destroyed it. */
static int extent_is_whole(const struct verifier *v, struct extent e)
{
    const struct byte_map *m = &v->bytes.tier[TIER_NVME];
    for (int i = byte_map_find(m, e.begin); i < m->n - 1 && m->at[i] < e.begin + e.bytes; i = m->next[i]) {
        const struct cell *c = byte_map_cell(m, i);
        if (m->at[m->next[i]] > e.begin && c->tensor != UNWRITTEN && !extent_matches(v, c, e))
            return 0;
    }
    return 1;
}

static const char *describe_predicate(int predicate, char *text, size_t size)
{
    if (predicate == 0)
        return "in any case";
    snprintf(text, size, "under predicate %d", predicate);
    return text;
}

/* Returns the extent that the instruction reads at an address of an argument: all of it, or of experts one of several, equal but for the last. */
static struct extent extent_at(const struct verifier *v, int arg, int64_t at)
{
    struct extent e = argument_extent(v->p, v->in, arg);
    const int64_t each = v->in->op == OP_EXPERTS_KEEP ? program_call(v->p, v->in)->attrs.keep.extent : 0;
    const int64_t before = each > 0 ? (at - e.begin) / each * each : 0;
    return each > 0 ? (struct extent){e.begin + before, min_i64(each, e.bytes - before)} : e;
}

static enum status check_content(struct verifier *v, int k)
{
    const struct program *p = v->p;
    const struct operand *o = &p->operands[k];
    enum tier tier = p->buffers[o->buffer].tier;
    const struct byte_map *m = &v->bytes.tier[tier];
    int64_t begin = operand_begin(p, o), origin = o->row0 * p->tensors[o->tensor].row_bytes - begin;
    struct span s = v->bytes.operand[k];
    for (int i = s.first; i < s.last; i = m->next[i]) {
        const struct cell *c = byte_map_cell(m, i);
        int64_t bytes = m->at[m->next[i]] - m->at[i];
        char text[128];
        if (!holds(c, o->tensor, o->version, origin))
            return reject(v, k, "reads %s version %d rows %lld to %lld, but bytes %#llx + %lld of %s %s",
                          p->tensors[o->tensor].name, o->version, (long long)o->row0, (long long)operand_row1(p, o),
                          (unsigned long long)m->at[i], (long long)bytes, tier_name(tier),
                          describe_content(p, c, m->at[i], bytes, text, sizeof text));
        if (c->predicate != 0 && c->predicate != verify_read_predicate(v->p, v->in))
            return reject(v, k, "reads %s, which is only there if predicate %d holds, %s", p->tensors[o->tensor].name,
                          c->predicate, describe_predicate(verify_read_predicate(v->p, v->in), text, sizeof text));
        if (tier == TIER_NVME && !extent_matches(v, c, extent_at(v, (int)o->arg, m->at[i])))
            return reject(v, k, "reads nvme bytes %#llx + %lld, which were not written as one extent", (unsigned long long)begin,
                          (long long)o->bytes);
    }
    return OK;
}

/* Checks an instruction that may be left out and updates content that always exists: whatever it adds must exist only under its
 * predicate. */
static enum status check_addends(struct verifier *v, int k)
{
    const struct operand *o = v->p->operands;
    const struct byte_map *m = &v->bytes.tier[v->p->buffers[o[k].buffer].tier];
    int always = 0;
    for (int i = v->bytes.operand[k].first; i < v->bytes.operand[k].last; i = m->next[i])
        always |= ((const struct cell *)byte_map_cell(m, i))->predicate == 0;
    for (int a = v->in->first_operand; always && a < v->in->first_operand + v->in->n_operands; a++) {
        if (!op_arg(v->in->op, o[a].arg)->addend)
            continue;
        m = &v->bytes.tier[v->p->buffers[o[a].buffer].tier];
        for (int i = v->bytes.operand[a].first; i < v->bytes.operand[a].last; i = m->next[i]) {
            if (((const struct cell *)byte_map_cell(m, i))->predicate != v->in->predicate)
                return reject(v, k, "updates %s under predicate %d only, but %s, which it adds, is there in any case",
                              v->p->tensors[o[k].tensor].name, v->in->predicate, v->p->tensors[o[a].tensor].name);
        }
    }
    return OK;
}

/* --- Order --- */

static enum status unordered(const struct verifier *v, int k, int64_t address, const char *what, int lane, int32_t ticket)
{
    int other = v->clocks.by_ticket[lane][ticket - 1];
    const struct operand *o = &v->p->operands[k];
    return reject(
        v, k,
        "%s bytes at %#llx of %s %s by instruction %d (%s on %s, ticket %d) without being ordered after it (it knows %s up to ticket %d)",
        o->access == ACCESS_READ    ? "reads"
        : o->access == ACCESS_WRITE ? "writes"
                                    : "updates",
        (unsigned long long)address, tier_name(v->p->buffers[o->buffer].tier), what, other, op_name(v->p->instrs[other].op),
        lane_name((enum lane)lane), ticket, lane_name((enum lane)lane), v->clocks.now.ticket[lane]);
}

static enum status check_order(struct verifier *v, int k)
{
    const struct operand *o = &v->p->operands[k];
    const struct byte_map *m = &v->bytes.tier[v->p->buffers[o->buffer].tier];
    struct span s = v->bytes.operand[k];
    for (int i = s.first; i < s.last; i = m->next[i]) {
        const struct cell *c = byte_map_cell(m, i);
        if (c->writer_ticket > v->clocks.now.ticket[c->writer_lane])
            return unordered(v, k, m->at[i], "written", c->writer_lane, c->writer_ticket);
        if (o->access == ACCESS_READ)
            continue;
        for (int l = 0; l < LANES; l++) {
            if (c->reader[l] > v->clocks.now.ticket[l])
                return unordered(v, k, m->at[i], "read", l, c->reader[l]);
        }
    }
    return OK;
}

/* --- Effects --- */

/* Rejects operand k, which writes bytes that the same instruction reads; names the reading operand. */
static enum status reject_overlap(const struct verifier *v, int k)
{
    const struct program *p = v->p;
    const struct operand *w = &p->operands[k];
    int i = v->in->first_operand;
    for (const struct operand *r = &p->operands[i];
         r->access != ACCESS_READ || p->buffers[r->buffer].tier != p->buffers[w->buffer].tier ||
         operand_begin(p, r) >= operand_begin(p, w) + w->bytes || operand_begin(p, w) >= operand_begin(p, r) + r->bytes;
         r++)
        i++;
    return reject(v, k, "writes bytes that operand %d of the same instruction reads", i - v->in->first_operand);
}

static void apply_read(struct verifier *v, int k)
{
    struct byte_map *m = &v->bytes.tier[v->p->buffers[v->p->operands[k].buffer].tier];
    struct span s = v->bytes.operand[k];
    for (int i = s.first; i < s.last; i = m->next[i])
        ((struct cell *)byte_map_cell(m, i))->reader[v->in->lane] = v->in->ticket;
}

static enum status apply_write(struct verifier *v, int k)
{
    const struct program *p = v->p;
    const struct operand *o = &p->operands[k];
    struct byte_map *m = &v->bytes.tier[p->buffers[o->buffer].tier];
    struct span s = v->bytes.operand[k];
    int predicate = o->access == ACCESS_WRITE ? verify_write_predicate(v->p, v->in) : 0;
    for (int i = s.first; i < s.last; i = m->next[i]) {
        const struct cell *c = byte_map_cell(m, i);
        if (o->access == ACCESS_UPDATE && c->predicate != 0)
            predicate = c->predicate;
        if (c->writer_lane == v->in->lane && c->writer_ticket == v->in->ticket)
            return reject(v, k, "writes bytes that operand %d of the same instruction writes", c->source - v->in->first_operand);
        if (c->reader[v->in->lane] == v->in->ticket)
            return reject_overlap(v, k);
    }
    byte_map_join(m, s);
    struct cell *c = byte_map_cell(m, s.first);
    memset(c, 0, sizeof *c);
    c->tensor = o->tensor;
    c->version = operand_version_after(o);
    if (o->tensor >= 0)
        c->origin = o->row0 * p->tensors[o->tensor].row_bytes - operand_begin(p, o);
    c->source = k;
    c->predicate = predicate;
    c->writer_lane = v->in->lane;
    c->writer_ticket = v->in->ticket;
    return OK;
}

static enum status check_instr(struct verifier *v)
{
    const struct operand *o = v->p->operands;
    int first = v->in->first_operand, end = first + v->in->n_operands;
    clocks_advance(&v->clocks, v->index);
    for (int k = first; k < end; k++) {
        byte_map_cut(&v->bytes.tier[v->p->buffers[o[k].buffer].tier], v->bytes.operand[k]);
        if (o[k].access & ACCESS_READ)
            TRY(check_content(v, k));
        TRY(check_order(v, k));
    }
    for (int k = first; k < end; k++) {
        if (o[k].access == ACCESS_UPDATE && v->in->predicate != 0)
            TRY(check_addends(v, k));
    }
    for (int k = first; k < end; k++) {
        if (o[k].access == ACCESS_READ)
            apply_read(v, k);
    }
    for (int k = first; k < end; k++) {
        if (o[k].access != ACCESS_READ)
            TRY(apply_write(v, k));
    }
    return OK;
}

/* --- Beginning and end --- */

static enum status apply_live_in(struct verifier *v)
{
    const struct program *p = v->p;
    for (int b = 0; b < p->n_live_in; b++) {
        const struct binding *x = &p->live_in[b];
        struct byte_map *m = &v->bytes.tier[p->buffers[x->buffer].tier];
        struct span s = v->bytes.live_in[b];
        byte_map_cut(m, s);
        for (int i = s.first; i < s.last; i = m->next[i]) {
            const struct cell *c = byte_map_cell(m, i);
            if (c->tensor != UNWRITTEN)
                return status_fail(ERR_CORRUPT, "program %s: live-in bindings %d (%s) and %d (%s) share bytes of %s", p->name,
                                   -1 - c->source, p->tensors[c->tensor].name, b, p->tensors[x->tensor].name,
                                   tier_name(p->buffers[x->buffer].tier));
        }
        byte_map_join(m, s);
        struct cell *c = byte_map_cell(m, s.first);
        c->tensor = x->tensor;
        c->version = x->version;
        c->origin = x->row0 * p->tensors[x->tensor].row_bytes - binding_begin(p, x);
        c->source = -1 - b;
    }
    for (int b = 0; b < p->n_live_in; b++) {
        const struct binding *x = &p->live_in[b];
        if (p->buffers[x->buffer].tier == TIER_NVME && !extent_is_whole(v, binding_extent(p, x)))
            return status_fail(ERR_CORRUPT, "program %s: live-in binding %d (%s) shares nvme bytes with another extent", p->name,
                               b, p->tensors[x->tensor].name);
    }
    return OK;
}

static enum status check_live_out(struct verifier *v)
{
    const struct program *p = v->p;
    for (int b = 0; b < p->n_live_out; b++) {
        const struct binding *x = &p->live_out[b];
        enum tier tier = p->buffers[x->buffer].tier;
        struct byte_map *m = &v->bytes.tier[tier];
        struct span s = v->bytes.live_out[b];
        int64_t begin = binding_begin(p, x), origin = x->row0 * p->tensors[x->tensor].row_bytes - begin;
        byte_map_cut(m, s);
        for (int i = s.first; i < s.last; i = m->next[i]) {
            const struct cell *c = byte_map_cell(m, i);
            int64_t bytes = m->at[m->next[i]] - m->at[i];
            char text[128];
            if (!holds(c, x->tensor, x->version, origin))
                return status_fail(
                    ERR_CORRUPT,
                    "program %s: live-out binding %d promises %s version %d rows %lld to %lld, but at the end bytes %#llx + %lld of %s %s",
                    p->name, b, p->tensors[x->tensor].name, x->version, (long long)x->row0, (long long)x->row1,
                    (unsigned long long)m->at[i], (long long)bytes, tier_name(tier),
                    describe_content(p, c, m->at[i], bytes, text, sizeof text));
            if (c->predicate != 0)
                return status_fail(ERR_CORRUPT,
                                   "program %s: live-out binding %d promises %s, which is only there if predicate %d holds",
                                   p->name, b, p->tensors[x->tensor].name, c->predicate);
        }
        if (tier == TIER_NVME && !extent_is_whole(v, binding_extent(p, x)))
            return status_fail(
                ERR_CORRUPT,
                "program %s: live-out binding %d (%s) was not written to nvme as one extent, or that is partly overwritten",
                p->name, b, p->tensors[x->tensor].name);
    }
    return OK;
}

static void verifier_destroy(struct verifier *v)
{
    footprint_destroy(&v->bytes);
    clocks_destroy(&v->clocks);
}

static enum status verifier_create(struct verifier *v, const struct program *p)
{
    struct cell nothing;
    memset(&nothing, 0, sizeof nothing);
    nothing.tensor = UNWRITTEN;
    memset(v, 0, sizeof *v);
    v->p = p;
    TRY(footprint_create(p, sizeof(struct cell), &nothing, &v->bytes));
    enum status st = clocks_create(p, &v->clocks);
    if (st != OK)
        footprint_destroy(&v->bytes);
    return st;
}

enum status program_verify(const struct program *p)
{
    struct verifier v;
    enum status st;
    TRY(verify_form(p));
    TRY(verifier_create(&v, p));
    TRY_GOTO(apply_live_in(&v), done);
    for (v.index = 0; v.index < p->n_instrs; v.index++) {
        v.in = &p->instrs[v.index];
        TRY_GOTO(check_instr(&v), done);
    }
    st = check_live_out(&v);
done:
    verifier_destroy(&v);
    return st;
}
