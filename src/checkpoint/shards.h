/* A list of tensors as one safetensors file, or as several with an index, under Hugging Face's names. Private to this folder. */
#ifndef LTRAIN_CHECKPOINT_SHARDS_H
#define LTRAIN_CHECKPOINT_SHARDS_H

#include "data/safetensors.h"

/* Largest file that transformers writes; a larger tensor has a file to itself. */
#define SHARD_BYTES ((int64_t)5000000000)

struct shards;

/* Rules for sharing tensors out among files. */
struct shard_form {
    int64_t most;       /* bytes of a file, beyond which there are several and an index; 0: always one file */
    const char *others; /* a file of tensors that becomes the last file unchanged; NULL: none */
};

/* Plans the files that n tensors make, in their order. decls must outlive *out. */
enum status shards_plan(const struct st_decl *decls, int n, const struct shard_form *form, struct shards **out);
void shards_free(struct shards *x); /* NULL is fine */
/* Writes the name of file i: `single` if it is the only one, else model-00001-of-00003.safetensors. */
void shards_name(const struct shards *x, int i, const char *single, char name[64]);

/* Creates the files without data and, if there are several, model.safetensors.index.json (one rank only). */
enum status shards_create(const struct shards *x, const char *dir, const char *single);
/* Moves the model's files to another directory, and removes other files of a model there (one rank only). */
enum status shards_move(const struct shards *x, const char *from, const char *to, const char *single);

struct shard_writer;
enum status shards_open(const struct shards *x, const char *dir, const char *single, struct shard_writer **out);
/* Writes elements as st_write_f32 and st_write_bytes do; tensor: number in the whole list. */
enum status shards_write_f32(struct shard_writer *w, int tensor, int64_t first, int64_t n, const float *data);
enum status shards_write_bytes(struct shard_writer *w, int tensor, int64_t first, int64_t n, const void *data);
/* Ends writing as st_write_finish and st_write_abort do. */
enum status shards_finish(struct shard_writer *w);
void shards_abort(struct shard_writer *w);

#endif
