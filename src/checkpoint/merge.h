/* Merging an adapter into its base: files in, files out, a part of a tensor at a time. */
#ifndef LTRAIN_CHECKPOINT_MERGE_H
#define LTRAIN_CHECKPOINT_MERGE_H

#include "checkpoint/checkpoint.h"

struct merge_report {
    int64_t merged, tensors; /* changed matrices, and all tensors */
    double change, lost;     /* root mean square of s B A, and of the error of rounding to the files' type */
    int dequantised;         /* matrices that were quantised in the base */
    int untied;              /* 1: head and embedding are one matrix in the base and two here */
    int64_t rows;            /* rows of embedding and head that the adapter replaces */
    int fp16;                /* tensors that were fp16 and are fp32: bf16 cannot hold fp16's digits */
};

/* Merges adapters: writes W + s B A of every adapted matrix, and the parameters trained beside adapters. Sums are computed in
 * fp32 and rounded once to the type of the base's file. All else stays as it is. m: the model with adapters and all rows.
 *
 * A head and an embedding that are one matrix become two if either has an adapter. Matrices that m has quantised are written as
 * the numbers they stand for, with an adapter or without.
 *
 * Writes DIR/model.safetensors, or several files and their index. Copies config.json (with the model's rotary positions, if
 * different) and the tokenizer's files: the base's, or those in texts->like. */
enum status checkpoint_merge(const struct model *m, const char *base, const char *adapter, const char *dir,
                             const struct export_texts *texts, struct merge_report *out);

#endif
