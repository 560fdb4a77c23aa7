/* Sources of a session's initial parameters: files of weights, adapter files beside them, or initial values. */
#ifndef LTRAIN_ENGINE_SOURCE_H
#define LTRAIN_ENGINE_SOURCE_H

#include "data/safetensors.h"
#include "model/config/token_rows.h"
#include "model/model.h"

#define ADAPTER_FILE "adapter_model.safetensors"
#define ADAPTER_PREFIX "base_model.model." /* prefix of tensor names in ADAPTER_FILE */

struct source {
    const struct model *model;
    const struct model *slice; /* slice of the model, whose quantised matrices are made in place of the model's; NULL: none */
    struct st_file *file;      /* NULL: initial values */
    /* file of the trained parameters of a model with adapters; NULL: adapters get initial values, all else comes from `file` */
    struct st_file *adapter;
    const char *prefix;          /* prefix of tensor names in `adapter` */
    struct st_file *masters;     /* fp32 masters of trained parameters, from a checkpoint of a bf16 run; NULL: none */
    struct token_rows_list rows; /* rows of the base's embedding and head that `adapter` replaces */
    uint64_t seed;               /* seed of initial values */
    struct {
        int param;      /* parameter that the bytes belong to, of the slice if there is one */
        int64_t matrix; /* matrix of a stack; 0: the first, or the only one */
        void *bytes;
    } packed; /* quantised matrix made last (engine/packed.h); bytes NULL: none yet */
};

/* Opens the files. path: as st_open takes it; adapter: a directory with ADAPTER_FILE, or a checkpoint of a model with adapters.
 * Both may be NULL. */
enum status source_open(const struct model *m, const char *path, const char *adapter, uint64_t seed, struct source *out);
void source_close(struct source *s);
/* Reads elements [first, first + n) of a parameter, in fp32 or bf16; rows that the adapter replaces are the adapter's. ERR_INVALID: missing, or not finite. May be called from any
 * thread. */
enum status source_read(struct source *s, int param, int64_t first, int64_t n, enum dtype type, void *data);
/* Finds the file with an adapter's tensors. ERR_INVALID: the path is too long. */
enum status source_adapter_path(const char *adapter, char path[4096]);
/* Checks that the adapter's file has what the model trains, in its shapes, and nothing else. Copies of the base's head and
 * embedding are allowed; they must equal the base's if that is open. ERR_INVALID names the first fault. */
enum status source_check_adapter(const struct source *s);

#endif
