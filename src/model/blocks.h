/* The kinds of blocks of a layer, a row each: everything about a kind except its parameters' names (families) and its lowering. A
 * file that includes this one defines
 *
 *   BLOCK(KIND, name, text, maps, mask, signature, flops, kept, saved, per_token, per_text, sharing, cut)
 *
 * KIND       BLOCK_KIND of enum block_kind
 * name       member of struct model_block, of type struct NAME_block; the lowering is NAME_lowering (src/plan/lower/blocks)
 * text       as messages and reports print it
 * maps       MAPS(map, ...): its linear maps, which may have adapters; one whose weight is -1 is absent
 * mask       index of the model's mask under which queries attend keys; -1: a block without attention. A layer with mask 0 in none of its
 *            blocks is light: short of compute beside the bytes that it keeps
 * signature  SIGNATURE(number, ...): numbers that, with kind and mask, decide a block's work. Layers are of one kind if their blocks'
 *            kinds, masks and signatures are equal
 * flops      model FLOPs of `layers` such blocks, forward and backward, beyond those of matrices that multiply tokens: from
 *            `pairs`, attended pairs by mask, and `tokens`
 * kept       bytes a token that training always keeps beside the layer's input, with `size` bytes in the storage type
 * saved      elements of the storage type a token that are saved or computed again (alpha)
 * per_token  elements of the storage type that sampling caches of each earlier token; they stand in blocks of tokens under `mask`
 * per_text   numbers in fp32 that sampling keeps of a whole text; a text is read again where it is cut short
 * sharing    SHARED: ranks may share a sequence; WHOLE: they may not
 * cut        CUT(count, what, .into = {...}, ...): the number that slices must divide, its name in messages, and the fields that are
 *            cut (struct fields); BY_ROWS: every slice has such blocks whole, for its rows of the stream; UNCUT: models with such
 *            blocks are not cut into slices
 *
 * Expressions read the block as `b` and the model as `m`. Derived from the rows: enum block_kind, the union in struct model_block,
 * the functions block_* of model.h, the table of lowerings, and through them merging of adapters, kinds of layers, FLOPs, caches of
 * sampling, legal meshes, parts of models, estimates and the names in reports. */
/* clang-format off */

BLOCK(ATTENTION, attention, "attention", MAPS(&b->q, &b->k, &b->v, &b->o, &b->gate, &b->q_a, &b->kv_a), b->mask, SIGNATURE(b->shape),
      6.0 * layers * (double)(m->shapes[b->shape].heads * (m->shapes[b->shape].head_dim + m->shapes[b->shape].value_dim)) * pairs[b->mask],
      m->shapes[b->shape].heads * (m->shapes[b->shape].value_dim * size + 4) + attention_latents(&m->shapes[b->shape]) * size,
      b->kv_a.weight >= 0 ? 0 : (m->shapes[b->shape].heads + 2 * m->shapes[b->shape].kv_heads) * m->shapes[b->shape].head_dim,
      m->shapes[b->shape].kv_heads * (m->shapes[b->shape].head_dim + m->shapes[b->shape].value_dim), 0, SHARED,
      CUT(m->shapes[b->shape].kv_heads, "key-value heads", .into = {&b->q, &b->k, &b->v, &b->gate}, .out_of = &b->o,
          .norm = {&b->q_norm, &b->k_norm, &b->v_norm}, .by_head = &b->sinks))

BLOCK(MLP, mlp, "MLP", MAPS(&b->gate, &b->up, &b->down, &b->scalar), -1, SIGNATURE(b->up.out, b->gate.weight >= 0), 0, 0, 2 * b->up.out, 0, 0, SHARED,
      CUT(b->up.out, "columns of the MLP", .into = {&b->gate, &b->up}, .out_of = &b->down))

BLOCK(EXPERTS, experts, "experts", MAPS(&b->router, &b->gate_up, &b->down, &b->descend, &b->ascend), -1,
      SIGNATURE(b->experts, b->used, b->ffn, b->kind), 0, 8 * b->used + (b->ascend.weight >= 0 ? b->ascend.in * size : 0), b->used * b->gate_up.out, 0, 0, SHARED, BY_ROWS)

BLOCK(RECURRENT, recurrent, "recurrence", MAPS(&b->qkv, &b->second, &b->third, &b->z, &b->a, &b->b, &b->out, &b->z_low, &b->a_low), -1,
      SIGNATURE(b->kind, b->heads, b->groups, b->key_dim, b->value_dim, b->width),
      (recurrent_has_delta(b->kind) ? 18.0 : 12.0) * layers * (double)(b->heads * b->key_dim * b->value_dim) * (double)tokens,
      b->heads * b->key_dim * b->value_dim * 4 / 2048 /* one state for each chunk of 2,048 rows, the planner's usual size */,
      b->channels + b->heads * b->value_dim + b->a.out + (b->b.weight >= 0 ? b->heads : 0),
      0, b->heads * b->key_dim * b->value_dim + (b->width - 1) * b->channels, SHARED, UNCUT)

BLOCK(CONV, conv, "short convolution", MAPS(&b->before, &b->after, &b->x, &b->out), -1, SIGNATURE(b->x.out, b->width), 0, 0,
      3 * b->x.out, 0, (b->width - 1) * b->x.out, SHARED, UNCUT)

#ifdef LTRAIN_TOY_BLOCK /* tests only (tests/toy): a gated scan over a document's tokens, without attention */
BLOCK(TOY, toy, "toy scans", MAPS(&b->in, &b->gate, &b->out), -1, SIGNATURE(b->in.out), 21.0 * layers * (double)b->in.out * (double)tokens,
      0, 2 * b->in.out, 0, b->in.out, WHOLE, UNCUT)
#endif

/* clang-format on */
#undef BLOCK
