/* The program on a virtual clock. */
#include "program/program.h"

double cost_seconds(const struct cost_model *m, const struct instr *in)
{
    if (in->lane != LANE_COMPUTE)
        return m->overhead + (double)in->bytes / m->lane_bytes[in->lane];
    if (in->op == OP_GEMM)
        return m->overhead + in->flops / m->gemm_flops;
    if (in->op == OP_ATTN_FWD || in->op == OP_ATTN_BWD)
        return m->overhead + in->flops / m->attention_flops;
    return m->overhead + (double)in->bytes / m->memory;
}

double program_simulate(struct program *p, const struct cost_model *m, const int *dep_first, const int *dep, int use_release)
{
    double lane_free[LANES] = {0}, total = 0;
    /* end times by (lane, ticket): instrs are in an order in which every wait points backwards, so one scan is enough */
    for (int i = 0; i < p->n_instrs; i++) {
        struct instr *in = &p->instrs[i];
        double start = lane_free[in->lane];
        if (use_release && in->release > start)
            start = in->release;
        if (dep_first) {
            for (int k = dep_first[i]; k < dep_first[i + 1]; k++)
                if (p->instrs[dep[k]].end > start)
                    start = p->instrs[dep[k]].end;
        }
        in->start = start;
        in->end = start + cost_seconds(m, in);
        lane_free[in->lane] = in->end;
        if (in->end > total)
            total = in->end;
    }
    return total;
}
