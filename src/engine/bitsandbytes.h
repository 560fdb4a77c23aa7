/* Quantised matrices as bitsandbytes lays them out in files. NF4: NAME.weight with scales and maps in NAME.weight.absmax and so
 * on; int8: NAME.weight and NAME.SCB.
 *
 * Only for this folder and src/checkpoint, which merges into such files and writes them. */
#ifndef LTRAIN_ENGINE_BITSANDBYTES_H
#define LTRAIN_ENGINE_BITSANDBYTES_H

#include "engine/source.h"

enum { BITSANDBYTES_PARTS = 6, BITSANDBYTES_NAME = 256, BITSANDBYTES_WORDS = 256 };

/* A tensor that holds one part of a quantised matrix. */
struct bitsandbytes_part {
    /* suffix of the tensor's name: "" is NAME.weight; ".x" is appended to it; a suffix without a dot replaces "weight" */
    const char *suffix;
    const char *type; /* type as files write it */
    int n_dims;
    int64_t shape[2], bytes;
    int64_t at; /* offset in the packed bytes; -1: not among them, made by bitsandbytes_words */
};
/* Lists the parts of a quantised matrix and returns their number. */
int bitsandbytes_parts(const struct quantised *q, struct bitsandbytes_part part[BITSANDBYTES_PARTS]);
/* Makes a part's tensor name from `weight`, the matrix's name in the file. ERR_INVALID: `weight` does not end with "weight", or
 * is too long. */
enum status bitsandbytes_name(const char *weight, const struct bitsandbytes_part *part, char name[BITSANDBYTES_NAME]);
/* Writes the bytes of the part that is not among the packed bytes. type: the matrix's type before quantisation. */
void bitsandbytes_words(const struct quantised *q, const void *packed, enum dtype type, char words[BITSANDBYTES_WORDS]);

/* Reads a matrix from the file, byte for byte, into the layout of model_quantised. ERR_INVALID: it has another form or shape. */
enum status bitsandbytes_read(struct source *s, int param, void *packed);
/* Returns a matrix's type before quantisation: F32, BF16 or F16. int8 files do not store it; the embedding's type stands for it. */
enum status bitsandbytes_type(struct source *s, int param, enum dtype *out);

#endif
