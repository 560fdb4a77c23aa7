/* The ops, a row each: everything about an op except its kernels and its lowering. A file that includes this one defines
 *
 *   OP(KIND, name, class, omission, storage, flops, arguments...)
 *
 * and, if ops without a GPU's kernel differ there, CPU_OP, with the same arguments.
 *
 * KIND       OP_KIND of enum op_kind
 * name       as printed; the kernels are ops_cpu_NAME and ops_cuda_NAME
 * class      ELEMENTWISE, MATRIX, ATTENTION, RECURRENT or COLLECTIVE (enum op_class)
 * omission   whether a predicate may leave it out (enum op_omission): NEVER or FREELY
 * storage    the storage type whose rates it has: F32 or BF16, from the attributes `a`
 * flops      floating point operations, from the attributes `a` and, for attention, `pairs`: attended pairs of a query and a key,
 *            per query head. A multiply-add counts two. The number is exact for matrix multiplication and attention. For other
 *            ops it counts the additions and multiplications per element of the CPU kernel; an exponential, root or division
 *            counts one (memory bandwidth bounds those ops anyway). It is 0 for ops that only move bytes, and for those with few
 *            additions beside many messages
 *
 * The arguments in order, USE(argument, type):
 *
 *   IN, OUT, INOUT            read; written; updated in place
 *   SUM(.., flag)             written, or added to if attribute `flag` is set
 *   IN_OR_INOUT(.., flag)     read, or updated if attribute `flag` is set
 *   ADDEND                    read; without it the op adds nothing to the arguments that it updates
 *   OPT_IN, OPT_OUT, OPT_INOUT, OPT_SUM  may be absent: NULL
 *   WORK                      scratch of as many bytes as the kernel asks for; absent if that is 0
 *
 * Their types: F32, BF16, F64, I32; T(x): the type attrs.x.dtype, F32 or BF16; T_OR_F32(x, x.y): that, or F32 if attribute x.y is
 * set; AS(x.y): the type attrs.x.y; BYTES; RECORD and NORM: struct step_record and struct norm_result of program/op.h. Shapes stand
 * in the comments: row-major, rows are tokens.
 *
 * Derived from the rows: enum op_kind, the functions of program/op.h, both kernel tables of src/ops and the CUDA kernels'
 * declarations, the verifier's check of arguments and predicates, and the kinds of work in cost model, profile and report.
 *
 * Written by hand, since each of the concerned ops needs an algorithm of its own: scratch (op_workspace_bytes,
 * comm_workspace_bytes), bytes on the wire (comm_bytes), the messages of collectives (comm_start), the sizes of their arguments
 * (verify/comm.c), and the choice between attention kernels (src/attention). Kernels of class RECURRENT are those of src/recurrence. */
/* clang-format off */
#ifndef CPU_OP
#define CPU_OP OP
#endif
/* Rows that an op of experts is expected to work on. */
#define EXPECTED(x) ((double)a->x.rows * 100 / (a->x.padded > 0 ? a->x.padded : 100))

/* --- Memory: attrs.copy, attrs.fill --- */

/* Copies bytes from tier to tier or within one. Executed by the copy and I/O lanes. */
OP(COPY, copy, ELEMENTWISE, FREELY, F32, 0, IN(src, BYTES), OUT(dst, BYTES))

/* Zeroes bytes. */
OP(FILL, fill, ELEMENTWISE, NEVER, F32, 0, OUT(dst, BYTES))

/* --- Embedding: attrs.embed --- */

/* x = scale table[tokens] (+ pos_table[positions]): x [rows,dim], table [vocab,dim] or (by_columns) [dim,vocab], tokens [rows],
 * pos_table [max_pos,dim], positions [rows]. With attrs.embed.over rows of x whose token is negative stay as they are */
OP(EMBED, embed, ELEMENTWISE, NEVER, a->embed.dtype, 0,
   SUM(x, T(embed), embed.over), IN(table, T(embed)), IN(tokens, I32), OPT_IN(pos_table, T(embed)), OPT_IN(positions, I32))

/* dtable (+)= scatter-add of scale dx, in row order: dtable [vocab,dim] or [dim,vocab], dx [rows,dim], index [rows] */
OP(EMBED_GRAD, embed_grad, ELEMENTWISE, NEVER, F32, 1.0 * a->embed.rows * a->embed.dim,
   SUM(dtable, F32, embed.accumulate), IN(dx, T(embed)), IN(index, I32))

/* Writes rows of a table anew: table[index] = x. An index outside the table writes nothing, and no two are equal: table
 * [vocab,dim], x [rows,dim], index [rows] */
OP(SCATTER, scatter, ELEMENTWISE, NEVER, a->embed.dtype, 0,
   INOUT(table, T(embed)), IN(x, T(embed)), IN(index, I32))

/* --- Single columns of logits: attrs.picked --- */

/* y's columns index become x's: y [rows,..], x [rows,n], index [n] of different columns */
OP(PUT_COLUMNS, put_columns, ELEMENTWISE, NEVER, a->picked.dtype, 0,
   INOUT(y, T(picked)), IN(x, T(picked)), IN(index, I32))

/* x becomes y's columns index, which become zero */
OP(TAKE_COLUMNS, take_columns, ELEMENTWISE, NEVER, a->picked.dtype, 0,
   OUT(x, T(picked)), INOUT(y, T(picked)), IN(index, I32))

/* --- Norms: attrs.norm --- */

/* RMSNorm or LayerNorm of each row: y, x [rows,dim], weight, bias [dim]; RMSNorm without weights multiplies by 1; NORM_NONE has
 * neither weight nor bias */
OP(NORM, norm, ELEMENTWISE, NEVER, a->norm.dtype, 5.0 * a->norm.rows * a->norm.dim,
   OUT(y, T(norm)), IN(x, T(norm)), OPT_IN(weight, T(norm)), OPT_IN(bias, T(norm)))

/* dx += gradient of x; dweight and dbias (+)= their gradients: dx, x, dy [rows,dim], the others [dim] */
OP(NORM_GRAD, norm_grad, ELEMENTWISE, NEVER, a->norm.dtype, 16.0 * a->norm.rows * a->norm.dim,
   INOUT(dx, T(norm)), IN(x, T(norm)), OPT_IN(weight, T(norm)), IN(dy, F32), OPT_SUM(dweight, F32, norm.accumulate),
   OPT_SUM(dbias, F32, norm.accumulate), WORK(work))

/* --- Linear layers: attrs.gemm, attrs.bias --- */

/* c[m,n] (+)= scale op(a)[m,k] op(b)[k,n], fp32 accumulation; one bf16 operand makes it a product in bf16. c begins at column
 * c_first of the argument's rows, which are ldc apart, a at column a_first of its own */
OP(GEMM, gemm, MATRIX, FREELY, a->gemm.a_type == BF16 || a->gemm.b_type == BF16 ? BF16 : F32,
   2.0 * a->gemm.m * a->gemm.n * a->gemm.k,
   SUM(c, AS(gemm.c_type), gemm.accumulate), ADDEND(a, AS(gemm.a_type)), IN(b, AS(gemm.b_type)), WORK(work))

/* y += bias: y [rows,dim], with rows ld elements apart (0: dim), bias [dim] */
OP(BIAS, bias, ELEMENTWISE, FREELY, a->bias.y_type, 1.0 * a->bias.rows * a->bias.dim,
   INOUT(y, AS(bias.y_type)), ADDEND(bias, T(bias)))

/* dbias (+)= column sums of dy, in row order: dbias [dim], dy [rows,dim], with rows ld elements apart (0: dim) */
OP(BIAS_GRAD, bias_grad, ELEMENTWISE, FREELY, a->bias.y_type, 1.0 * a->bias.rows * a->bias.dim,
   SUM(dbias, F32, bias.accumulate), ADDEND(dy, AS(bias.y_type)))

/* --- The residual stream: attrs.add --- */

/* y = x + scale (delta (+ bias)): y, x, delta [rows,dim], bias [dim] */
OP(ADD, add, ELEMENTWISE, NEVER, a->add.dtype, 2.0 * a->add.rows * a->add.dim,
   OUT(y, T(add)), IN(x, T(add)), IN(delta, F32), OPT_IN(bias, T(add)))

/* --- Positions: attrs.rope --- */

/* Rotates x by its positions' angles, or back if `inverse`: x [rows,heads*head_dim], positions [rows], inv_freq [head_dim/2]; a head
 * may be rotated in part */
OP(ROPE, rope, ELEMENTWISE, NEVER, a->rope.x_type, 3.0 * a->rope.rows * a->rope.heads * a->rope.head_dim,
   INOUT(x, AS(rope.x_type)), IN(positions, I32), IN(inv_freq, F32))

/* --- Activation functions: attrs.act; all [rows,dim] --- */

/* y = f(gate) * up, f by attrs.act.kind: silu, a gelu, sigmoid, or clamped with up as ops/swiglu.h says; times the sigmoid of a
 * row's scalar [rows], if there are some */
OP(SWIGLU, swiglu, ELEMENTWISE, NEVER, a->act.dtype, 6.0 * a->act.rows * a->act.dim,
   OUT(y, T(act)), IN(gate, T(act)), IN(up, T(act)), OPT_IN(scalar, F32))

/* gate, up and scalar become their gradients, dy becomes OP_SWIGLU's y */
OP(SWIGLU_GRAD, swiglu_grad, ELEMENTWISE, NEVER, a->act.dtype, 14.0 * a->act.rows * a->act.dim,
   INOUT(gate, T(act)), INOUT(up, T(act)), INOUT(dy, T(act)), OPT_INOUT(scalar, F32))

/* y = gelu(x), by its tanh approximation ("gelu_new") or erf, or the square of relu(x) */
OP(GELU, gelu, ELEMENTWISE, NEVER, a->act.dtype, 12.0 * a->act.rows * a->act.dim,
   OUT(y, T(act)), IN(x, T(act)))

/* x becomes its gradient, dy becomes OP_GELU's y */
OP(GELU_GRAD, gelu_grad, ELEMENTWISE, NEVER, a->act.dtype, 19.0 * a->act.rows * a->act.dim,
   INOUT(x, T(act)), INOUT(dy, T(act)))

/* --- Experts: attrs.route, attrs.experts, attrs.gated, attrs.combine ---
 *
 * A token has k experts, so r tokens have n = r k pairs, numbered by token, then by expert's number. Rows of pairs are sorted by
 * expert, then by token; offsets[e] is the first row of expert e. Indices that do not exist are ERR_CORRUPT. */

/* Chooses k experts for each token, in ascending order of their numbers, and gives them weights p: the greatest of f(logits) (+
 * bias), f by attrs.route.kind. A NaN is greater than all numbers; of equal ones the lower expert is taken. Groups rank by the sum
 * of their two greatest, or by their greatest. counts (+)= tokens of each expert, plain (+)= those of a choice by the softmax alone, sums (+)= the softmax
 * of each expert; tokens whose index is negative count nowhere. Weights are multiplied by their expert's factor: ids, p [rows,k],
 * counts, plain, sums, bias, factors [experts], logits [rows,experts], index [rows] */
OP(ROUTE, route, ELEMENTWISE, NEVER, F32, 6.0 * a->route.rows * a->route.experts,
   OUT(ids, I32), OUT(p, F32), OPT_SUM(counts, I32, route.accumulate), OPT_SUM(plain, I32, route.accumulate),
   OPT_SUM(sums, F32, route.accumulate), IN(logits, F32), OPT_IN(bias, F32), OPT_IN(index, I32), OPT_IN(factors, F32),
   WORK(work))

/* Sorts pairs by expert: order[n]: each row's pair, place [rows,k]: each pair's row, offsets [experts+1], ids [rows,k] */
OP(PERMUTE, permute, ELEMENTWISE, NEVER, F32, 0,
   OUT(order, I32), OUT(place, I32), OUT(offsets, I32), IN(ids, I32))

/* Brings the experts that tokens chose into a layer's slots, each in place of the one that was chosen least recently: slots [rows]:
 * slot of each of ids [rows]; kept: all matrices of the experts in slots, stack after stack; table [..]: which these are
 * (KEEP_CALLS, ...); home: matrices of all experts. Executed by the lane that reads the home's tier */
CPU_OP(EXPERTS_KEEP, experts_keep, ELEMENTWISE, NEVER, F32, 0,
   INOUT(kept, BYTES), INOUT(table, I32), OUT(slots, I32), IN(home, BYTES), IN(ids, I32))

/* y (+)= each expert's rows of x times its matrix (+ bias); x has all n rows or, with an order, those of tokens, row order[i] / per.
 * A row's bits do not depend on the number of rows: y [n,out], x [..,in], w [count,out,in] or [count,in,out], bias [count,out] */
OP(EXPERTS, experts, MATRIX, NEVER, a->experts.x_type == BF16 || a->experts.w_type == BF16 ? BF16 : F32,
   2.0 * EXPECTED(experts) * a->experts.in * a->experts.out * a->experts.count / a->experts.experts,
   SUM(y, AS(experts.y_type), experts.result), IN(x, AS(experts.x_type)), IN(w, AS(experts.w_type)), IN(offsets, I32),
   OPT_IN(order, I32), OPT_IN(bias, AS(experts.w_type)), WORK(work))

/* dw (+)= each expert's dy^T x, 0 without rows, and dbias (+)= its column sums of (p) dy. With an order, rows of x or dy
 * (attrs.experts.gathers) are gathered as above: dw as w, dy [..,out], x [..,in], dbias [count,out], p [n], by pair */
OP(EXPERTS_GRAD, experts_grad, MATRIX, NEVER, a->experts.x_type == BF16 || a->experts.y_type == BF16 ? BF16 : F32,
   2.0 * EXPECTED(experts) * a->experts.in * a->experts.out * a->experts.count / a->experts.experts,
   OPT_SUM(dw, F32, experts.result), IN(dy, AS(experts.y_type)), IN(x, AS(experts.x_type)), IN(offsets, I32), OPT_IN(order, I32),
   OPT_SUM(dbias, F32, experts.result), OPT_IN(p, F32), WORK(work))

/* act = p f(gate) up, f as of OP_SWIGLU, for each pair's row: act [n,dim], gate_up [n,2 dim] or, of GATE_ALONE, [n,dim], p, place
 * [rows,k] */
OP(GATED, gated, ELEMENTWISE, NEVER, a->gated.dtype, 7.0 * EXPECTED(gated) * a->gated.k * a->gated.dim,
   OUT(act, T(gated)), IN(gate_up, T(gated)), IN(p, F32), IN(place, I32))

/* gate_up becomes its gradient, g, the gradient of act, becomes OP_GATED's act, and dp that of p, with <dy, bias> of the pair's token
 * and expert if there is a bias: dp [n], by row, dy [rows,width], bias [experts,width], ids [rows,k] */
OP(GATED_GRAD, gated_grad, ELEMENTWISE, NEVER, a->gated.dtype, 18.0 * EXPECTED(gated) * a->gated.k * a->gated.dim,
   INOUT(gate_up, T(gated)), INOUT(g, T(gated)), OUT(dp, F32), IN(p, F32), IN(place, I32), OPT_IN(dy, T(gated)),
   OPT_IN(bias, T(gated)), OPT_IN(ids, I32))

/* acc (+)= the sum of a token's rows of y (+ p times their experts' bias), in the order of its pairs: acc [rows,dim], y [n,dim],
 * place, p, ids [rows,k], bias [experts,dim] */
OP(COMBINE, combine, ELEMENTWISE, NEVER, a->combine.y_type, 1.0 * a->combine.rows * a->combine.k * a->combine.dim,
   SUM(acc, F32, combine.accumulate), IN(y, AS(combine.y_type)), IN(place, I32), OPT_IN(p, F32), OPT_IN(bias, T(combine)),
   OPT_IN(ids, I32))

/* Sorts the rows that reach this rank's experts, by expert, then by member and token: order [rows]: each sorted row's place among
 * those that arrived; place [rows]: the reverse, -1 beyond them; offsets [experts/members+1]; all [members,experts+1]: offsets of all
 * members' pairs; ids [rows]: the expert, of this rank's, of each row as it arrived, -1 beyond them */
OP(ARRIVE, arrive, ELEMENTWISE, NEVER, F32, 0,
   OUT(order, I32), OUT(place, I32), OUT(offsets, I32), IN(all, I32), IN(record, RECORD), OPT_OUT(ids, I32))

/* y's row i = x's row index[i] / per, where the index is not negative: y [rows,cols], x [x_rows,cols], index [rows] */
OP(SPREAD, spread, ELEMENTWISE, NEVER, a->spread.dtype, 0, OUT(y, T(spread)), IN(x, T(spread)), IN(index, I32))

/* logits become their gradient, from dp, by row. `plain` adds the balancing loss's gradient for tokens whose index is not negative:
 * counts of the experts over all tokens of that loss, in parts to be added up. dfactor: each pair's gradient of its factor: logits
 * [rows,experts], ids, p, place [rows,k], dp, dfactor [n], plain [parts,experts], index [rows], factors [experts] */
OP(ROUTE_GRAD, route_grad, ELEMENTWISE, NEVER, F32, 8.0 * a->route.rows * a->route.experts,
   INOUT(logits, F32), IN(ids, I32), IN(p, F32), IN(dp, F32), IN(place, I32), OPT_IN(plain, I32), OPT_IN(index, I32),
   OPT_IN(factors, F32), OPT_OUT(dfactor, F32))

/* --- Attention: attrs.attn (layouts and mask: attention/attention.h), attrs.heads --- */

/* o = softmax(scale q k^T, capped) v and lse: q k^T and p v */
OP(ATTN_FWD, attn_fwd, ATTENTION, FREELY, a->attn.dtype, 4.0 * pairs * a->attn.hq * a->attn.head_dim + 2.0 * pairs * a->attn.hq * (double)(op_value_dim(a) - a->attn.head_dim),
   OUT(o, T_OR_F32(attn, attn.o_fp32)), OUT(lse, F32), IN(q, T(attn)), IN(k, T(attn)), IN(v, T(attn)), IN(lo, I32), IN(hi, I32), WORK(work))

/* dq = and dk, dv (+)= their gradients: recomputes q k^T, then do v^T, dq, dk and dv. Without keys and values, dk and dv get
 * nothing. */
OP(ATTN_BWD, attn_bwd, ATTENTION, FREELY, a->attn.dtype, 10.0 * pairs * a->attn.hq * a->attn.head_dim + 4.0 * pairs * a->attn.hq * (double)(op_value_dim(a) - a->attn.head_dim),
   OUT(dq, F32), SUM(dk, F32, attn.accumulate), SUM(dv, F32, attn.accumulate), IN(q, T(attn)), ADDEND(k, T(attn)),
   ADDEND(v, T(attn)), IN(delta, F32), IN(lse, F32), IN(do, T(attn)), IN(lo, I32), IN(hi, I32), WORK(work))

/* delta[rows,heads] = sum over head_dim of do * o: o, do [rows,heads,head_dim] */
OP(ATTN_DELTA, attn_delta, ELEMENTWISE, NEVER, a->heads.dtype, 2.0 * a->heads.rows * a->heads.heads * a->heads.head_dim,
   OUT(delta, F32), IN(o, T(heads)), IN(do, T(heads)))

/* y[rows,heads,own+shared] = x[rows,heads,own] beside z[rows,shared], the same for all heads */
OP(HEADS_JOIN, heads_join, ELEMENTWISE, FREELY, a->join.dtype, 0,
   OUT(y, T(join)), IN(x, T(join)), IN(z, T(join)))

/* dx = the part of dy that is HEADS_JOIN's x; dz (+)= the other part, summed over heads in their order */
OP(HEADS_SPLIT, heads_split, ELEMENTWISE, FREELY, F32, 1.0 * a->join.rows * a->join.heads * a->join.shared,
   OUT(dx, F32), SUM(dz, F32, join.accumulate), ADDEND(dy, F32))

/* Merges attention over two disjoint sets of keys: o and lse, of one set, become those of both; o_part and lse_part are the
 * other's: o, o_part [rows,heads,head_dim], lse, lse_part [heads,rows] */
OP(ATTN_MERGE, attn_merge, ELEMENTWISE, FREELY, F32, 3.0 * a->heads.rows * a->heads.heads * a->heads.head_dim,
   INOUT(o, F32), INOUT(lse, F32), ADDEND(o_part, F32), ADDEND(lse_part, F32))

/* Adds e^sink to the softmax's denominator of each head that this rank attends (learned sinks), and changes o and lse
 * accordingly: o [rows,heads,head_dim], lse [heads,rows], sinks [members*share] */
OP(ATTN_SINK, attn_sink, ELEMENTWISE, NEVER, a->sink.dtype, 1.0 * a->sink.rows * a->sink.heads * a->sink.head_dim,
   INOUT(o, F32), INOUT(lse, F32), IN(sinks, T(sink)), IN(record, RECORD))

/* dsinks -= sum over rows of e^(sink - lse) delta, for the heads that this rank attends; lse includes the sink: dsinks, sinks
 * [members*share], lse [heads,rows], delta [rows,heads] */
OP(ATTN_SINK_GRAD, attn_sink_grad, ELEMENTWISE, NEVER, F32, 4.0 * a->sink.rows * a->sink.heads,
   INOUT(dsinks, F32), IN(sinks, T(sink)), IN(lse, F32), IN(delta, F32), IN(record, RECORD))

/* --- Linear attention: attrs.conv, attrs.decay, attrs.scan ---
 *
 * A row's link (enum row_link) says whether it follows the row before it, the last one of the call before for the first, begins a
 * document, or has no token. Rows without a token are not read; their results are 0, and nothing passes through them changed. What
 * passes from call to call is a tail of width - 1 rows of x and a state [heads,key_dim,value_dim]; without one, it is 0. */

/* y = f(sum of weight[j,width-1-i] times the token's i-th predecessor in its document (+ bias)), column by column, f: silu or none;
 * the columns are those of x from `first` on. Without weights, for a width of 1, they are 1. after: the tail after the rows: y [rows,cols], after, tail [width-1,cols], x [rows,ld],
 * weight [cols,width], bias [cols], links [rows] */
OP(CONV, conv, RECURRENT, NEVER, a->conv.dtype, (2.0 * a->conv.width + 6.0) * a->conv.rows * a->conv.cols,
   OUT(y, T(conv)), OPT_OUT(after, T(conv)), IN(x, T(conv)), OPT_IN(weight, T(conv)), OPT_IN(bias, T(conv)), IN(links, I32),
   OPT_IN(tail, T(conv)))

/* x's columns become their gradient, dtail, the gradient of the tail after the rows, that of the tail before them; dweight and
 * dbias (+)= their gradients: dy [rows,cols], dweight [cols,width], dbias [cols], dtail [width-1,cols] */
OP(CONV_GRAD, conv_grad, RECURRENT, NEVER, a->conv.dtype, (6.0 * a->conv.width + 12.0) * a->conv.rows * a->conv.cols,
   INOUT(x, T(conv)), OPT_INOUT(dtail, F32), OPT_SUM(dweight, F32, conv.accumulate), OPT_SUM(dbias, F32, conv.accumulate), IN(dy, T(conv)),
   OPT_IN(weight, T(conv)), OPT_IN(bias, T(conv)), IN(links, I32), OPT_IN(tail, T(conv)), WORK(work))

/* g = -e^a_log step, step = softplus(a + dt_bias), at least `least`. beta = factor times the sigmoid of b (b_first >= 0), or the
 * step. a and b are columns of x; without x, head h has g = -rate 2^(-8 (h + 1) / heads) and a step of 1: g [rows,heads*per], beta
 * [rows,heads], x [rows,ld], a_log [heads], dt_bias [heads*per] */
OP(DECAY, decay, RECURRENT, NEVER, F32, 8.0 * a->decay.rows * a->decay.heads,
   OUT(g, F32), OUT(beta, F32), OPT_IN(x, AS(decay.x_type)), OPT_IN(a_log, T(decay)), OPT_IN(dt_bias, T(decay)))

/* The columns of a and b become their gradients, from dg and dbeta; da_log and ddt_bias (+)= theirs */
OP(DECAY_GRAD, decay_grad, RECURRENT, NEVER, F32, 16.0 * a->decay.rows * a->decay.heads,
   INOUT(x, AS(decay.x_type)), OPT_SUM(da_log, F32, decay.accumulate), OPT_SUM(ddt_bias, F32, decay.accumulate), IN(dg, F32),
   IN(dbeta, F32), IN(a_log, T(decay)), IN(dt_bias, T(decay)))

/* For each head, token after token, S = e^g S + k u', o = S' q (+ skip v). SCAN_DELTA: u = beta (v - (e^g S)' k); SCAN_SSD: u =
 * beta v; SCAN_CHANNELS: as SCAN_DELTA, with a g of each row of S. S is 0 before a document. q, k and v are columns of qkv, q and k those of key head h groups / heads; with eps they are
 * times 1 / sqrt(sum of squares + eps), then q is times `scale`. after: the state after the rows: o [rows,heads*value_dim], qkv
 * [rows,ld], g [rows,heads], of SCAN_CHANNELS [rows,heads*key_dim], beta [rows,heads], skip [heads] */
OP(SCAN, scan, RECURRENT, NEVER, a->scan.dtype, op_scan_flops(a, 0),
   OUT(o, T(scan)), OPT_OUT(after, F32), IN(qkv, T(scan)), IN(g, F32), IN(beta, F32), IN(links, I32), OPT_IN(before, F32),
   OPT_IN(skip, T(scan)), WORK(work))

/* qkv's columns, g and beta become their gradients, dstate, the gradient of the state after the rows, that of the state before
 * them; dskip (+)= its gradient. The states between are recomputed: do [rows,heads*value_dim], dskip [heads] */
OP(SCAN_GRAD, scan_grad, RECURRENT, NEVER, a->scan.dtype, op_scan_flops(a, 1),
   INOUT(qkv, T(scan)), INOUT(g, F32), INOUT(beta, F32), INOUT(dstate, F32), OPT_SUM(dskip, F32, scan.accumulate), IN(do, T(scan)),
   IN(links, I32), OPT_IN(before, F32), OPT_IN(skip, T(scan)), WORK(work))

/* Summary of rows, whatever state enters them: after = move before + own. It covers the rows before, too, if `accumulate` is set:
 * move [heads,key_dim,key_dim], own [heads,key_dim,value_dim] */
OP(SCAN_SUM, scan_sum, RECURRENT, NEVER, a->scan.dtype, op_scan_sum_flops(a, 0),
   SUM(move, F32, scan.accumulate), SUM(own, F32, scan.accumulate), IN(qkv, T(scan)), IN(g, F32), IN(beta, F32), IN(links, I32),
   WORK(work))

/* dstate, the gradient of the state after the rows, becomes that of the state before them: do [rows,heads*value_dim] */
OP(SCAN_GRAD_SUM, scan_grad_sum, RECURRENT, NEVER, a->scan.dtype, op_scan_sum_flops(a, 1),
   INOUT(dstate, F32), IN(qkv, T(scan)), IN(g, F32), IN(beta, F32), IN(do, T(scan)), IN(links, I32), WORK(work))

/* --- Linear attention between ranks: attrs.fold --- */

/* State before each piece of a sequence, by the pieces' summaries in the given order: state[order[0]] = 0, state[order[i + 1]] =
 * move[order[i]] state[order[i]] + own[order[i]]. transposed: gradients of the states after the pieces, from the last piece on, by
 * move's transposes. state, own [pieces,heads,key_dim,value_dim], move [pieces,heads,key_dim,key_dim], order [pieces] */
OP(SCAN_FOLD, scan_fold, RECURRENT, NEVER, F32, 2.0 * a->fold.pieces * a->fold.heads * a->fold.key_dim * a->fold.key_dim * a->fold.value_dim,
   OUT(state, F32), IN(move, F32), IN(own, F32), IN(order, I32))

/* --- Types: attrs.cast --- */

/* y = scale x, rounded to nearest even: [n] */
OP(CAST, cast, ELEMENTWISE, NEVER, a->cast.y_type, 0,
   OUT(y, AS(cast.y_type)), IN(x, AS(cast.x_type)))

/* x *= factor[0]: x [n], factor of x's type; attributes y_type and scale are not used */
OP(MULTIPLY, multiply, ELEMENTWISE, NEVER, a->cast.x_type, 1.0 * a->cast.n,
   INOUT(x, AS(cast.x_type)), IN(factor, AS(cast.x_type)))

/* --- Quantised matrices: attrs.dequantise --- */

/* Dequantises a part of a matrix in NF4 or int8 (base/quantised.h), rounded to y's type: y [rows,cols]; codes: those from element
 * `first` on, which may begin in the middle of a byte; scales: the matrix's part of scales */
OP(DEQUANTISE, dequantise, ELEMENTWISE, FREELY, a->dequantise.y_type, 1.0 * a->dequantise.rows * a->dequantise.cols,
   OUT(y, AS(dequantise.y_type)), IN(codes, BYTES), IN(scales, F32))

/* --- Columns: attrs.columns --- */

/* Columns [y_first, y_first + cols) of y = columns [x_first, x_first + cols) of x: y [rows,y_ld], x [rows,x_ld] */
OP(COLUMNS, columns, ELEMENTWISE, NEVER, a->columns.x_type, 0,
   SUM(y, AS(columns.y_type), columns.keep), IN(x, AS(columns.x_type)))

/* --- Dropout: attrs.dropout --- */

/* y = scale x (both of one type), or y += scale x (x in fp32), for each number that ops/dropout.h keeps; the others count as 0: y
 * [rows,cols], with rows y_ld apart, x [rows,cols], with rows x_ld apart, numbers [rows]: number of each row's token in its whole
 * sequence */
OP(DROPOUT, dropout, ELEMENTWISE, NEVER, a->dropout.accumulate ? F32 : a->dropout.dtype,
   (a->dropout.accumulate ? 2.0 : 1.0) * a->dropout.rows * a->dropout.cols,
   SUM(y, T(dropout), dropout.accumulate), IN(x, T_OR_F32(dropout, dropout.accumulate)), IN(numbers, I32), IN(record, RECORD))

/* --- Loss: attrs.loss --- */

/* loss[1] = sum of -log p(target), after scaling and capping the logits. With `gradient`, logits become (softmax - onehot) *
 * record->inv_targets, times the derivative of scale and cap; with `gradient_bf16`, dlogits gets that instead. Rows with a
 * negative target give 0: logits and dlogits [rows,vocab], with rows loss.ld apart, targets [rows], each [rows]: the loss of
 * every row. With weights [rows], a row's part of the sum and of the gradient is that many times as large, but not `each` */
OP(LOSS, loss, ELEMENTWISE, NEVER, F32, (a->loss.gradient || a->loss.gradient_bf16 ? 6.0 : 4.0) * a->loss.rows * a->loss.vocab,
   IN_OR_INOUT(logits, F32, loss.gradient), OUT(loss, F64), IN(targets, I32), IN(record, RECORD),
   OPT_OUT(each, F32), OPT_OUT(dlogits, BF16), OPT_IN(weights, F32))

/* --- Gradients and update: attrs.vec --- */

/* y += x: [n] */
OP(ACCUM, accum, ELEMENTWISE, FREELY, F32, 1.0 * a->vec.n,
   INOUT(y, F32), ADDEND(x, F32))

/* sum[1] = sum of squares of x[n], in blocks of SUMSQ_BLOCK elements, each block in order, blocks added in order */
OP(SUMSQ, sumsq, ELEMENTWISE, NEVER, F32, 2.0 * a->vec.n,
   OUT(sum, F64), IN(x, F32))

/* norm = global norm from sums[n], clip factor, and skip if it is not finite */
OP(CLIP, clip, ELEMENTWISE, NEVER, F32, 1.0 * a->vec.n,
   OUT(norm, NORM), IN(sums, F64), IN(record, RECORD))

/* A step of AdamW (ops/adamw.h): [n] */
OP(ADAMW, adamw, ELEMENTWISE, NEVER, a->vec.low_precision ? BF16 : F32, 15.0 * a->vec.n,
   INOUT(master, F32), INOUT(m, AS(vec.moments)), INOUT(v, AS(vec.moments)), IN(grad, F32), IN(norm, NORM), IN(record, RECORD),
   OPT_OUT(param, BF16))

/* --- Collectives, on comm lanes: attrs.comm ---
 *
 * The lane names the group. P members, me = own index in the group, n elements of `type` in all, member r's share of them is
 * [r * share, min((r + 1) * share, n)), which may be empty. */

/* dst[share of r] = src of member r: src [share], dst [n] */
OP(ALL_GATHER, all_gather, COLLECTIVE, NEVER, F32, 0, IN(src, BYTES), OUT(dst, BYTES))

/* dst = sum over members, in order, of src[own share], each first rounded to `type` for sending; zero beyond the share's end: src
 * [n], dst [share] */
OP(REDUCE_SCATTER, reduce_scatter, COLLECTIVE, NEVER, F32, 0, IN(src, F32), OUT(dst, F32), WORK(work))

/* Reduce-scatter, then all-gather: x [n] */
OP(ALL_REDUCE, all_reduce, COLLECTIVE, NEVER, F32, 0, INOUT(x, F32), WORK(work))

/* dst[r] = src[me] of member r: both [P][share] */
OP(ALL_TO_ALL, all_to_all, COLLECTIVE, NEVER, F32, 0, IN(src, BYTES), OUT(dst, BYTES))

/* sends src to member (me + distance) mod P and receives dst from (me - distance) mod P; each of the two only if its predicate
 * holds: [n] */
OP(EXCHANGE, exchange, COLLECTIVE, NEVER, F32, 0, IN(src, BYTES), OUT(dst, BYTES))

/* Sends src to the member `distance` further in the group and receives dst from the one as far behind, each only if its predicate
 * holds; dst stays as it is where nothing is received: [n] */
OP(SHIFT, shift, COLLECTIVE, NEVER, F32, 0, IN(src, BYTES), INOUT(dst, BYTES))

/* dst = own share of the root's src, zero beyond its end: src [n], dst [share] */
OP(DEAL, deal, COLLECTIVE, NEVER, F32, 0, IN(src, BYTES), OUT(dst, BYTES))

/* The root's dst[share of r] = src of member r; the dst of other members stays as it is: src [share], dst [n] */
OP(COLLECT, collect, COLLECTIVE, NEVER, F32, 0, IN(src, BYTES), INOUT(dst, BYTES))

/* Sends each member the rows of the pairs with its experts, of src [share], sorted by expert; dst [n] has the members' rows one after
 * another, and nothing behind them. all [P][experts+1]: the offsets of all members' pairs */
OP(DISPATCH, dispatch, COLLECTIVE, NEVER, F32, 0, IN(src, BYTES), OUT(dst, BYTES), IN(all, I32))

/* Sends the rows of OP_DISPATCH back where they came from: src [n], dst [share] */
OP(RETURN, return, COLLECTIVE, NEVER, F32, 0, IN(src, BYTES), OUT(dst, BYTES), IN(all, I32))

#ifdef LTRAIN_TOY_BLOCK /* tests only (tests/toy): attrs.act */
/* y = f state + (1 - f) u, f = sigmoid(g), row by row; the state becomes y, and is 0 before position 0. A row with a negative
 * index does not change the state: y, u, g [rows,dim], state [dim], positions, index [rows] */
CPU_OP(TOY_SCAN, toy_scan, ELEMENTWISE, NEVER, a->act.dtype, 7.0 * a->act.rows * a->act.dim,
   OUT(y, T(act)), INOUT(state, F32), IN(u, T(act)), IN(g, T(act)), IN(positions, I32), OPT_IN(index, I32))
/* u and g become their gradients; carry becomes the gradient of the state before the rows */
CPU_OP(TOY_SCAN_GRAD, toy_scan_grad, ELEMENTWISE, NEVER, a->act.dtype, 14.0 * a->act.rows * a->act.dim,
   INOUT(u, T(act)), INOUT(g, T(act)), INOUT(carry, F32), IN(y, T(act)), IN(dy, T(act)), OPT_IN(state, F32), IN(positions, I32))
#endif

#undef OP
#undef CPU_OP
#undef EXPECTED
/* clang-format on */
