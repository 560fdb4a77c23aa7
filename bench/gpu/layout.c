/* Prints as JSON the C layout of the structures that bench/gpu/kernels.py lays out by hand. */
#include "attention/cuda_attention.h"
#include "ops/cuda_ops.h"

#include <stddef.h>
#include <stdio.h>

#define AT(name, type, member) printf("  \"%s\": %zu,\n", name, offsetof(type, member))
#define VALUE(name, value) printf("  \"%s\": %lld,\n", name, (long long)(value))

int main(void)
{
    puts("{");
    VALUE("op_attrs", sizeof(struct op_attrs));
    AT("embed.rows", struct op_attrs, embed.rows);
    AT("embed.vocab", struct op_attrs, embed.vocab);
    AT("embed.dtype", struct op_attrs, embed.dtype);
    AT("embed.accumulate", struct op_attrs, embed.accumulate);
    AT("norm.eps", struct op_attrs, norm.eps);
    AT("norm.kind", struct op_attrs, norm.kind);
    AT("norm.dtype", struct op_attrs, norm.dtype);
    AT("norm.accumulate", struct op_attrs, norm.accumulate);
    AT("bias.y_type", struct op_attrs, bias.y_type);
    AT("bias.ld", struct op_attrs, bias.ld);
    AT("add.dtype", struct op_attrs, add.dtype);
    AT("rope.heads", struct op_attrs, rope.heads);
    AT("rope.x_type", struct op_attrs, rope.x_type);
    AT("act.dtype", struct op_attrs, act.dtype);
    AT("act.kind", struct op_attrs, act.kind);
    AT("attn.sq", struct op_attrs, attn.sq);
    AT("attn.k0", struct op_attrs, attn.k0);
    AT("attn.hq", struct op_attrs, attn.hq);
    AT("attn.head_dim", struct op_attrs, attn.head_dim);
    AT("attn.dtype", struct op_attrs, attn.dtype);
    AT("attn.accumulate", struct op_attrs, attn.accumulate);
    AT("attn.scale", struct op_attrs, attn.scale);
    AT("attn.cap", struct op_attrs, attn.cap);
    AT("attn.value_dim", struct op_attrs, attn.value_dim);
    AT("loss.vocab", struct op_attrs, loss.vocab);
    AT("loss.gradient_bf16", struct op_attrs, loss.gradient_bf16);
    AT("route.groups", struct op_attrs, route.groups);
    AT("route.aux", struct op_attrs, route.aux);
    AT("experts.in", struct op_attrs, experts.in);
    AT("experts.gathers", struct op_attrs, experts.gathers);
    AT("conv.accumulate", struct op_attrs, conv.accumulate);
    AT("scan.ld", struct op_attrs, scan.ld);
    AT("scan.eps", struct op_attrs, scan.eps);
    AT("fold.transposed", struct op_attrs, fold.transposed);
    AT("gated.width", struct op_attrs, gated.width);
    AT("gated.alpha", struct op_attrs, gated.alpha);
    AT("combine.k", struct op_attrs, combine.k);
    AT("combine.accumulate", struct op_attrs, combine.accumulate);
    AT("heads.heads", struct op_attrs, heads.heads);
    AT("cast.x_type", struct op_attrs, cast.x_type);
    AT("vec.n_decay", struct op_attrs, vec.n_decay);
    AT("vec.share", struct op_attrs, vec.share);
    AT("vec.moments", struct op_attrs, vec.moments);
    VALUE("attn_cuda", sizeof(struct attn_cuda));
    AT("attn_cuda.shared_bytes", struct attn_cuda, shared_bytes);
    AT("attn_cuda.mode", struct attn_cuda, mode);
    VALUE("step_record", sizeof(struct step_record));
    AT("step_record.bias2", struct step_record, bias2);
    AT("step_record.rounding", struct step_record, rounding);
    AT("step_record.member0", struct step_record, member);
    VALUE("norm_result", sizeof(struct norm_result));
    AT("norm_result.factor", struct norm_result, factor);
    AT("norm_result.skip", struct norm_result, skip);
    VALUE("OP_EMBED_GRAD", OP_EMBED_GRAD);
    VALUE("OP_ATTN_FWD", OP_ATTN_FWD);
    VALUE("OP_ATTN_DELTA", OP_ATTN_DELTA);
    VALUE("OP_ADAMW", OP_ADAMW);
    printf("  \"OP_COUNT\": %d\n}\n", OP_COUNT);
    return 0;
}
