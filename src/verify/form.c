/* Checks of each instruction by itself, without regard to others. */
#include "verify/form.h"

#include "verify/byte_map.h"
#include "verify/comm.h"

#include <stdarg.h>

/* An instruction that is being checked. */
struct site {
    const struct program *p;
    const struct instr *in;
    int index;
};

static enum status reject(const struct site *s, int operand, const char *format, ...) __attribute__((format(printf, 3, 4)));

/* Fails with ERR_CORRUPT and a message that names the instruction. operand: its index within the instruction; -1: the fault is
 * the whole instruction's. */
static enum status reject(const struct site *s, int operand, const char *format, ...)
{
    char cause[512], where[32] = "";
    va_list args;
    va_start(args, format);
    vsnprintf(cause, sizeof cause, format, args);
    va_end(args);
    if (operand >= 0)
        snprintf(where, sizeof where, ", operand %d", operand);
    return status_fail(ERR_CORRUPT, "program %s: instruction %d (%s on %s)%s: %s", s->p->name, s->index, op_name(s->in->op),
                       lane_name(s->in->lane), where, cause);
}

/* Returns NULL, or why the range is not one of the buffer. */
static const char *range_fault(const struct program *p, int buffer, int64_t offset, int64_t bytes)
{
    if (buffer < 0 || buffer >= p->n_buffers)
        return "it names a buffer that does not exist";
    const struct buffer *b = &p->buffers[buffer];
    if ((unsigned)b->tier >= TIERS)
        return "its buffer lies in no tier";
    if (b->address < 0 || b->address % BUFFER_ALIGN != 0)
        return "its buffer has no address, or an unaligned one";
    if (b->bytes < 0 || b->address > p->arena[b->tier] - b->bytes)
        return "its buffer lies beyond the end of its tier's arena";
    if (bytes <= 0 || offset < 0 || offset > b->bytes - bytes)
        return "it is empty or reaches beyond its buffer";
    return NULL;
}

/* Returns NULL, or why there is no such tensor. */
static const char *tensor_fault(const struct program *p, int tensor)
{
    if (tensor < 0 || tensor >= p->n_tensors)
        return "it names a tensor that does not exist";
    const struct tensor *t = &p->tensors[tensor];
    if (t->row_bytes <= 0 || t->rows <= 0 || t->rows > INT64_MAX / t->row_bytes)
        return "its tensor has no size";
    return NULL;
}

/* Returns NULL, or why these are not rows of the tensor. */
static const char *rows_fault(const struct program *p, int tensor, int64_t row0, int64_t row1)
{
    const struct tensor *t = &p->tensors[tensor];
    if (row0 < 0 || row0 >= row1 || row1 > t->rows)
        return "it names rows that its tensor does not have";
    return NULL;
}

/* Returns NULL, or why instructions of this lane may not touch this tier. */
static const char *tier_fault(const struct program *p, enum lane lane, int writes, enum tier t)
{
    int memory = t == TIER_HOST || (t == TIER_DEVICE && !p->discrete);
    switch (lane) {
    case LANE_COMPUTE:
        return t == TIER_DEVICE ? NULL : "the compute lane touches the device only";
    case LANE_H2D:
        return t == (writes ? TIER_DEVICE : TIER_HOST) ? NULL : "the h2d lane copies from the host to the device";
    case LANE_D2H:
        return t == (writes ? TIER_HOST : TIER_DEVICE) ? NULL : "the d2h lane copies from the device to the host";
    case LANE_HOST:
        return memory ? NULL : "the host lane reaches the host only, and a device that is not discrete";
    case LANE_READ:
        return (writes ? memory : t == TIER_NVME)
                   ? NULL
                   : "the read lane copies from nvme to the host, or to a device that is not discrete";
    case LANE_WRITE:
        return (writes ? t == TIER_NVME : memory)
                   ? NULL
                   : "the write lane copies to nvme from the host, or from a device that is not discrete";
    case LANE_WORLD:
    case LANE_ULYSSES:
    case LANE_RING:
    case LANE_EP:
    case LANE_EXPERTS:
    case LANE_TP:
    case LANE_ZERO:
    case LANE_STAGE:
    case LANE_PP:
    case LANE_SEQUENCE:
        return t == TIER_DEVICE ? NULL : "comm lanes touch the device only";
    default:
        return "there is no such lane";
    }
}

/* Returns the lane that brings experts from a tier into slots on the device; LANES: there is none. */
static enum lane keeping_lane(enum tier home)
{
    return home == TIER_HOST ? LANE_H2D : home == TIER_NVME ? LANE_READ : LANES;
}

/* Returns NULL, or why bringing experts into slots may not touch this tier: their home is that of the lane, all else on the device. */
static const char *keeping_fault(enum lane lane, int arg, enum tier t)
{
    enum { HOME = 3 };
    if (arg == HOME ? keeping_lane(t) == lane : t == TIER_DEVICE)
        return NULL;
    return "experts come to the device from the tier that their lane reads";
}

static enum status check_use(const struct site *s, int k, const struct operand *o)
{
    enum op_use use = op_arg_use(s->in->op, o->arg, &program_call(s->p, s->in)->attrs);
    int fits = use == ARG_IN      ? o->access == ACCESS_READ
               : use == ARG_INOUT ? o->access == ACCESS_UPDATE
                                  : o->access == ACCESS_WRITE;
    if (use == ARG_NONE)
        return reject(s, k, "the op has no argument %d", o->arg);
    if (!fits)
        return reject(s, k, "argument %d is %s by this op and its attributes, but the operand says otherwise", o->arg,
                      use == ARG_IN      ? "read"
                      : use == ARG_INOUT ? "updated"
                                         : "written");
    if (use == ARG_WORK && o->tensor != -1)
        return reject(s, k, "argument %d is scratch and cannot hold a tensor", o->arg);
    return OK;
}

static enum status check_operand(const struct site *s, int k, const struct operand *o)
{
    const struct program *p = s->p;
    if (o->arg >= OP_MAX_ARGS)
        return reject(s, k, "there is no argument %d", o->arg);
    if (o->access != ACCESS_READ && o->access != ACCESS_WRITE && o->access != ACCESS_UPDATE)
        return reject(s, k, "access mode %d does not exist", o->access);
    const char *fault = range_fault(p, o->buffer, o->offset, o->bytes);
    if (fault)
        return reject(s, k, "%s (buffer %d, bytes %lld + %lld)", fault, o->buffer, (long long)o->offset, (long long)o->bytes);
    const enum tier tier = p->buffers[o->buffer].tier;
    fault = s->in->op == OP_EXPERTS_KEEP ? keeping_fault(s->in->lane, o->arg, tier)
                                         : tier_fault(p, s->in->lane, o->access != ACCESS_READ, tier);
    if (fault)
        return reject(s, k, "%s, not %s %s memory", fault, o->access == ACCESS_READ ? "from" : "to", tier_name(tier));
    TRY(check_use(s, k, o));
    if (o->tensor == -1) {
        if (o->access != ACCESS_WRITE || s->in->op == OP_COPY)
            return reject(s, k, "scratch has no content: it can only be written, and never copied");
        return OK;
    }
    fault = tensor_fault(p, o->tensor);
    if (fault)
        return reject(s, k, "%s (tensor %d)", fault, o->tensor);
    if (o->bytes % p->tensors[o->tensor].row_bytes != 0)
        return reject(s, k, "%lld bytes are no whole rows of %s", (long long)o->bytes, p->tensors[o->tensor].name);
    fault = rows_fault(p, o->tensor, o->row0, operand_row1(p, o));
    if (fault)
        return reject(s, k, "%s (tensor %d, rows %lld to %lld)", fault, o->tensor, (long long)o->row0,
                      (long long)operand_row1(p, o));
    return OK;
}

/* Checks that arguments are whole elements of the types in the op table. */
static enum status check_elements(const struct site *s, const struct operand *o)
{
    for (int k = 0, next; k < s->in->n_operands; k = next) {
        int64_t bytes = 0, element = op_arg_element_bytes(s->in->op, o[k].arg, &program_call(s->p, s->in)->attrs);
        for (next = k; next < s->in->n_operands && o[next].arg == o[k].arg; next++)
            bytes += o[next].bytes;
        if (bytes % element != 0)
            return reject(s, k, "argument %d has %lld bytes, which are no whole elements of %lld", o[k].arg, (long long)bytes,
                          (long long)element);
    }
    return OK;
}

/* Checks that the segments of an argument are adjacent, in memory too, as a kernel gets one pointer; an nvme argument must be one
 * extent. */
static enum status check_args(const struct site *s, const struct operand *o)
{
    const struct program *p = s->p;
    unsigned seen = 0;
    for (int k = 0; k < s->in->n_operands; k++) {
        if (k == 0 || o[k].arg != o[k - 1].arg) {
            if (seen >> o[k].arg & 1)
                return reject(s, k, "the segments of argument %d are not consecutive operands", o[k].arg);
            seen |= 1u << o[k].arg;
            if (p->buffers[o[k].buffer].tier == TIER_NVME && o[k].offset % BUFFER_ALIGN != 0)
                return reject(s, k, "an nvme extent must start at a multiple of %d", BUFFER_ALIGN);
            continue;
        }
        const struct buffer *b = &p->buffers[o[k].buffer], *before = &p->buffers[o[k - 1].buffer];
        if (b->tier != before->tier || b->address + o[k].offset != before->address + o[k - 1].offset + o[k - 1].bytes)
            return reject(s, k, "it does not continue argument %d in memory", o[k].arg);
    }
    for (int arg = 0; arg < OP_MAX_ARGS; arg++) {
        const struct op_arg *x = op_arg(s->in->op, arg);
        if (x->use != ARG_NONE && !x->optional && !(seen >> arg & 1))
            return reject(s, -1, "argument %d is missing", arg);
    }
    return OK;
}

/* Checks that source and destination, each a concatenation of segments, are the same bytes of the same tensors at the same
 * versions. */
static enum status check_copy(const struct site *s, const struct operand *o)
{
    const struct program *p = s->p;
    int n = s->in->n_operands, src = 0, dst = 0;
    /* bytes in all, and bytes compared within the present segment of source and destination */
    int64_t total = 0, src_done = 0, dst_done = 0;
    while (src < n && o[src].arg != 0)
        src++;
    while (dst < n && o[dst].arg != 1)
        dst++;
    while (src < n && o[src].arg == 0 && dst < n && o[dst].arg == 1) {
        const struct operand *a = &o[src], *b = &o[dst];
        int64_t row_bytes = p->tensors[a->tensor].row_bytes;
        if (a->tensor != b->tensor)
            return reject(s, dst, "a copy of %s cannot be %s", p->tensors[a->tensor].name, p->tensors[b->tensor].name);
        if (a->version != b->version)
            return reject(s, dst, "a copy of version %d of %s cannot be version %d", a->version, p->tensors[a->tensor].name,
                          b->version);
        if (a->row0 * row_bytes + src_done != b->row0 * row_bytes + dst_done)
            return reject(s, dst, "the copy moves rows of %s: row %lld comes from row %lld", p->tensors[a->tensor].name,
                          (long long)(b->row0 + dst_done / row_bytes), (long long)(a->row0 + src_done / row_bytes));
        int64_t step = min_i64(a->bytes - src_done, b->bytes - dst_done);
        total += step;
        src_done += step;
        dst_done += step;
        if (src_done == a->bytes)
            src++, src_done = 0;
        if (dst_done == b->bytes)
            dst++, dst_done = 0;
    }
    if ((src < n && o[src].arg == 0) || (dst < n && o[dst].arg == 1))
        return reject(s, -1, "source and destination of the copy differ in size");
    int64_t said = program_call(p, s->in)->attrs.copy.bytes;
    if (said != 0 && said != total)
        return reject(s, -1, "the copy's attribute says %lld bytes, its operands %lld", (long long)said, (long long)total);
    return OK;
}

/* Checks ticket and waits. issued: number of earlier instructions of each lane. */
static enum status check_waits(const struct site *s, const int64_t *issued)
{
    const struct instr *in = s->in;
    if (in->ticket != issued[in->lane] + 1)
        return reject(s, -1, "its ticket is %d, but it is the lane's instruction number %lld", in->ticket,
                      (long long)issued[in->lane] + 1);
    if (in->n_waits > LANES || in->first_wait < 0 || in->first_wait > s->p->n_waits - in->n_waits)
        return reject(s, -1, "its %d waits lie outside the table, or are too many", in->n_waits);
    for (int w = 0; w < in->n_waits; w++) {
        const struct wait *x = &program_waits(s->p, in)[w];
        if (x->lane < 0 || x->lane >= LANES)
            return reject(s, -1, "it waits for a lane that does not exist");
        if (x->ticket < 1 || x->ticket > issued[x->lane])
            return reject(s, -1, "it waits for %s ticket %d, of which only %lld come before it", lane_name((enum lane)x->lane),
                          x->ticket, (long long)issued[x->lane]);
    }
    return OK;
}

static enum status check_instr(const struct site *s, int64_t *issued)
{
    const struct instr *in = s->in;
    if (in->op >= OP_COUNT || in->lane >= LANES || (int)in->call >= s->p->n_calls)
        return status_fail(ERR_CORRUPT, "program %s: instruction %d has op %d on lane %d with call %d, which do not all exist",
                           s->p->name, s->index, in->op, in->lane, in->call);
    if (in->first_operand < 0 || in->first_operand > s->p->n_operands - in->n_operands)
        return reject(s, -1, "its operands lie outside the table");
    if ((op_class(in->op) == OPS_COLLECTIVE) != lane_is_comm(in->lane))
        return reject(s, -1, lane_is_comm(in->lane) ? "comm lanes execute collectives only" : "collectives need a comm lane");
    if (in->op == OP_EXPERTS_KEEP && in->lane != LANE_H2D && in->lane != LANE_READ)
        return reject(s, -1, "only the h2d and the read lane bring experts");
    if (in->op != OP_COPY && in->op != OP_EXPERTS_KEEP && in->lane != LANE_COMPUTE && in->lane != LANE_HOST &&
        !lane_is_comm(in->lane))
        return reject(s, -1, "this lane executes copies only");
    TRY(check_waits(s, issued));
    issued[in->lane]++;
    const struct operand *o = s->p->operands + in->first_operand;
    for (int k = 0; k < in->n_operands; k++)
        TRY(check_operand(s, k, &o[k]));
    TRY(check_args(s, o));
    char text[256];
    TRY(check_elements(s, o));
    const char *fault = verify_comm_fault(s->p, in, text, sizeof text);
    if (fault)
        return reject(s, -1, "%s", fault);
    return in->op == OP_COPY ? check_copy(s, o) : OK;
}

static enum status check_bindings(const struct program *p, const struct binding *list, int n, const char *which)
{
    for (int i = 0; i < n; i++) {
        const struct binding *b = &list[i];
        const char *fault = tensor_fault(p, b->tensor);
        if (!fault)
            fault = rows_fault(p, b->tensor, b->row0, b->row1);
        if (!fault)
            fault = range_fault(p, b->buffer, b->offset, binding_bytes(p, b));
        if (!fault && !p->buffers[b->buffer].persistent)
            fault = "its buffer is not persistent";
        if (!fault && p->buffers[b->buffer].tier == TIER_NVME &&
            (b->extent_offset % BUFFER_ALIGN != 0 || b->extent_offset > b->offset ||
             b->extent_offset + b->extent_bytes < b->offset + binding_bytes(p, b)))
            fault = "its nvme extent is not aligned or does not contain it";
        if (fault)
            return status_fail(ERR_CORRUPT, "program %s: %s binding %d (tensor %d, rows %lld to %lld, buffer %d + %lld): %s",
                               p->name, which, i, b->tensor, (long long)b->row0, (long long)b->row1, b->buffer,
                               (long long)b->offset, fault);
    }
    return OK;
}

enum status verify_form(const struct program *p)
{
    int64_t issued[LANES] = {0};
    TRY(program_built(p));
    TRY(check_bindings(p, p->live_in, p->n_live_in, "live-in"));
    TRY(check_bindings(p, p->live_out, p->n_live_out, "live-out"));
    for (int i = 0; i < p->n_instrs; i++) {
        struct site s = {p, &p->instrs[i], i};
        TRY(check_instr(&s, issued));
    }
    return OK;
}
