/* A list of tensors as one safetensors file, or as several with an index, as Hugging Face names them. Private to this folder. */
#ifndef LTRAIN_CHECKPOINT_SHARDS_H
#define LTRAIN_CHECKPOINT_SHARDS_H

#include "data/safetensors.h"

/* What transformers takes for a file at most; a larger tensor has one to itself. */
#define SHARD_BYTES ((int64_t)5000000000)

struct shards;

/* How tensors become files. */
struct shard_form {
    int64_t most;       /* bytes of a file, beyond which there are several and an index; 0: one file whatever it takes */
    const char *others; /* a file of tensors that becomes the last file as it is; NULL: none */
};

/* The files that n tensors make, in their order. decls must outlive it. */
enum status shards_plan(const struct st_decl *decls, int n, const struct shard_form *form, struct shards **out);
void shards_free(struct shards *x); /* NULL is fine */
/* model.safetensors, or model-00001-of-00003.safetensors; `single` is the name of a file that is alone. */
void shards_name(const struct shards *x, int i, const char *single, char name[64]);

/* By one rank: the files without data and, if there are several, model.safetensors.index.json. */
enum status shards_create(const struct shards *x, const char *dir, const char *single);
/* By one rank: the model's files from one directory into another one, where no other files of a model stay. */
enum status shards_move(const struct shards *x, const char *from, const char *to, const char *single);

struct shard_writer;
enum status shards_open(const struct shards *x, const char *dir, const char *single, struct shard_writer **out);
/* As st_write_f32 and st_write_bytes, by the number of the tensor in the whole list. */
enum status shards_write_f32(struct shard_writer *w, int tensor, int64_t first, int64_t n, const float *data);
enum status shards_write_bytes(struct shard_writer *w, int tensor, int64_t first, int64_t n, const void *data);
/* As st_write_finish and st_write_abort. */
enum status shards_finish(struct shard_writer *w);
void shards_abort(struct shard_writer *w);

#endif
