/* An adapter merged into its base: files in, files out, a part of a tensor at a time. */
#ifndef LTRAIN_CHECKPOINT_MERGE_H
#define LTRAIN_CHECKPOINT_MERGE_H

#include "checkpoint/checkpoint.h"

struct merge_report {
    int64_t merged, tensors;    /* matrices that were changed, of all tensors */
    double change, lost;        /* root mean square of s B A, and of what rounding to the files' type takes from it */
    int dequantised;            /* matrices of the base that were quantised */
    int untied;                 /* the base's head and embedding are one matrix, and two here */
    int fp16;                   /* tensors that were fp16 and are fp32: they have no place in bf16 */
};

/* W + s B A of every adapted matrix, in fp32, rounded once to the type that the base's file has, and what is trained beside adapters;
 * everything else as it is; a head and an embedding that are one matrix become two where either has an adapter. Matrices that m has quantised are the numbers of that, with an adapter or without. m: with adapters and all
 * rows. Writes DIR/model.safetensors, or several files and their index, and copies
 * config.json (with the model's rotary positions, where they are others) and the tokenizer's files: the base's, or those in texts->like. */
enum status checkpoint_merge(const struct model *m, const char *base, const char *adapter, const char *dir, const struct export_texts *texts,
                             struct merge_report *out);

#endif
