#include "program/digest.h"

#include "base/mix.h"

static uint64_t mix_tables(uint64_t h, const struct program *p)
{
    for (int i = 0; i < p->n_tensors; i++) {
        const struct tensor *t = &p->tensors[i];
        h = mix_text(h, t->name);
        h = mix_text(h, class_name(t->class));
        h = mix(mix(h, (uint64_t)t->rows), (uint64_t)t->row_bytes);
    }
    for (int i = 0; i < p->n_buffers; i++) {
        const struct buffer *b = &p->buffers[i];
        h = mix(mix(h, (uint64_t)b->bytes), (uint64_t)b->address);
        h = mix_text(mix_text(h, tier_name(b->tier)), class_name(b->class));
        h = mix(h, b->persistent);
    }
    return h;
}

static uint64_t mix_call(uint64_t h, const struct op_call *c)
{
    for (size_t i = 0; i < sizeof c->attrs.words / sizeof *c->attrs.words; i++)
        h = mix(h, (uint64_t)c->attrs.words[i]);
    return mix(mix_double(h, c->flops), (uint64_t)c->bytes);
}

static uint64_t mix_operand(uint64_t h, const struct operand *o)
{
    h = mix(mix(h, (uint64_t)o->buffer), (uint64_t)o->offset);
    h = mix(mix(h, (uint64_t)o->tensor), (uint64_t)o->row0);
    h = mix(mix(h, (uint64_t)o->bytes), o->version);
    return mix(mix(h, o->arg), o->access);
}

static uint64_t mix_instr(uint64_t h, const struct program *p, const struct instr *in)
{
    h = mix_text(mix_text(h, op_name(in->op)), lane_name(in->lane));
    h = mix(mix(h, in->depth), (uint64_t)phase_letter(in->phase));
    h = mix(mix(h, (uint64_t)in->unit), (uint64_t)in->predicate);
    h = mix_call(mix(h, (uint64_t)in->ticket), program_call(p, in));
    h = mix(h, in->n_operands);
    for (int k = 0; k < in->n_operands; k++)
        h = mix_operand(h, &p->operands[in->first_operand + k]);
    h = mix(h, in->n_waits);
    for (int k = 0; k < in->n_waits; k++)
        h = mix(mix(h, (uint64_t)program_waits(p, in)[k].lane), (uint64_t)program_waits(p, in)[k].ticket);
    return h;
}

static uint64_t mix_bindings(uint64_t h, const struct binding *b, int n)
{
    h = mix(h, (uint64_t)n);
    for (int i = 0; i < n; i++) {
        h = mix(mix(h, (uint64_t)b[i].buffer), (uint64_t)b[i].tensor);
        h = mix(mix(h, (uint64_t)b[i].version), (uint64_t)b[i].offset);
        h = mix(mix(h, (uint64_t)b[i].row0), (uint64_t)b[i].row1);
        h = mix(mix(h, (uint64_t)b[i].extent_offset), (uint64_t)b[i].extent_bytes);
    }
    return h;
}

uint64_t program_digest(const struct program *p)
{
    uint64_t h = mix_text(1, p->name);
    h = mix(mix(mix(h, (uint64_t)p->n_tensors), (uint64_t)p->n_buffers), (uint64_t)p->n_instrs);
    h = mix_tables(h, p);
    for (int i = 0; i < p->n_instrs; i++)
        h = mix_instr(h, p, &p->instrs[i]);
    h = mix_bindings(h, p->live_in, p->n_live_in);
    h = mix_bindings(h, p->live_out, p->n_live_out);
    h = mix(mix(h, (uint64_t)p->n_persistent), (uint64_t)p->write_depth);
    h = mix(h, (uint64_t)p->discrete);
    for (int l = 0; l < LANES; l++)
        if (l != LANE_SEQUENCE && (l <= LANE_RING || p->group_size[l] > 1)) /* a sequence's size follows from others */
            h = mix(h, (uint64_t)p->group_size[l]);
    for (int t = 0; t < TIERS; t++) {
        h = mix(mix(mix(h, (uint64_t)p->arena[t]), (uint64_t)p->lower_bound[t]), (uint64_t)p->serial_bound[t]);
        for (int c = 0; c < CLASSES; c++)
            h = mix(h, (uint64_t)p->peak[t][c]);
    }
    return h;
}
