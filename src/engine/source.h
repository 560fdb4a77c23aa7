/* Where the parameters of a session begin: files of weights, those of an adapter beside them, or initial values. */
#ifndef LTRAIN_ENGINE_SOURCE_H
#define LTRAIN_ENGINE_SOURCE_H

#include "data/safetensors.h"
#include "model/model.h"

#define ADAPTER_FILE "adapter_model.safetensors"
#define ADAPTER_PREFIX "base_model.model." /* of names in it */

struct source {
    const struct model *model;
    struct st_file *file;    /* NULL: initial values */
    struct st_file *adapter; /* of a model with adapters: what is trained; NULL: it begins as the model's parameters and initial values do */
    const char *prefix;      /* of names in it */
    struct st_file *masters; /* of what is trained, in fp32: a checkpoint of a bf16 run has them; NULL: there are none */
    uint64_t seed;           /* of initial values */
    struct {
        int param; /* whose it is */
        void *bytes;
    } packed; /* the quantised matrix that was made last (engine/packed.h); NULL: none yet */
};

/* path: as st_open takes it, adapter: a directory with ADAPTER_FILE, or a checkpoint of a model with adapters; both may be NULL. */
enum status source_open(const struct model *m, const char *path, const char *adapter, uint64_t seed, struct source *out);
void source_close(struct source *s);
/* Elements [first, first + n) of a parameter, in fp32 or bf16. ERR_INVALID: it is not there, or is not finite. From any thread. */
enum status source_read(struct source *s, int param, int64_t first, int64_t n, enum dtype type, void *data);
/* The file that has an adapter's tensors. ERR_INVALID: the path is too long. */
enum status source_adapter_path(const char *adapter, char path[4096]);
/* Whether the adapter's file has what the model trains, in its shapes, and nothing else but the base's head and embedding, as the base has
 * them where that is open. ERR_INVALID names the first that is wrong. */
enum status source_check_adapter(const struct source *s);

#endif
