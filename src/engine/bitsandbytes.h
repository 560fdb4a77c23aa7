/* Quantised matrices as bitsandbytes lays them out in files: of NF4 NAME.weight with its scales and maps as NAME.weight.absmax and so on, of
 * int8 NAME.weight and NAME.SCB. For this folder, and src/checkpoint, which merges into such files and writes them. */
#ifndef LTRAIN_ENGINE_BITSANDBYTES_H
#define LTRAIN_ENGINE_BITSANDBYTES_H

#include "engine/source.h"

enum { BITSANDBYTES_PARTS = 6, BITSANDBYTES_NAME = 256, BITSANDBYTES_WORDS = 256 };

/* A tensor that is a part of a matrix. */
struct bitsandbytes_part {
    const char *suffix; /* of its name: "" is NAME.weight itself; with a dot it comes after that, else it takes the place of "weight" */
    const char *type;   /* as files call it */
    int n_dims;
    int64_t shape[2], bytes;
    int64_t at; /* where it begins in the packed bytes; -1: it is not in them, but what bitsandbytes_words says */
};
/* How many there are. */
int bitsandbytes_parts(const struct quantised *q, struct bitsandbytes_part part[BITSANDBYTES_PARTS]);
/* weight: the matrix's name in the file. ERR_INVALID: it does not end with "weight", or is too long. */
enum status bitsandbytes_name(const char *weight, const struct bitsandbytes_part *part, char name[BITSANDBYTES_NAME]);
/* The bytes of the part that is not in the packed ones. type: the matrix's before it was quantised. */
void bitsandbytes_words(const struct quantised *q, const void *packed, enum dtype type, char words[BITSANDBYTES_WORDS]);

/* The matrix as the file has it, byte for byte, as model_quantised packs it. ERR_INVALID: it is in another form, or has another shape. */
enum status bitsandbytes_read(struct source *s, int param, void *packed);
/* The type that it had before, or (int8, which does not say it) that the embedding has: F32, BF16 or F16. */
enum status bitsandbytes_type(struct source *s, int param, enum dtype *out);

#endif
