/* Reading and writing safetensors files, streaming. */
#ifndef LTRAIN_DATA_SAFETENSORS_H
#define LTRAIN_DATA_SAFETENSORS_H

#include "base/num.h"
#include "base/status.h"

#include <stdint.h>

struct st_file; /* one or several files (model.safetensors, or model.safetensors.index.json with its shards) opened for reading */

/* path: a file, or a directory with model.safetensors or model.safetensors.index.json. Checks headers, offsets and lengths strictly: ERR_CORRUPT if they
 * contradict each other or the file's length, ERR_INVALID if something is not there or not supported. */
enum status st_open(const char *path, struct st_file **out);
void st_close(struct st_file *f);

struct st_info { enum dtype dtype; int n_dims; int64_t shape[4]; int64_t elements; };
int st_count(const struct st_file *f);
const char *st_name(const struct st_file *f, int i);
/* ERR_INVALID if there is no such tensor, or it is of a type that is not read (files may hold such tensors beside those asked for). */
enum status st_find(const struct st_file *f, const char *name, struct st_info *info);
/* May be called from several threads. Elements [first, first + n) converted to fp32 (from fp32, fp16, bf16). */
enum status st_read_f32(struct st_file *f, const char *name, int64_t first, int64_t n, float *out);

struct st_writer;
struct st_decl { const char *name; enum dtype dtype; int n_dims; int64_t shape[2]; };
/* Writes the header; then data in declaration order by st_write (any piece sizes), then st_finish: fsync, checks that all bytes came.
 * metadata {"format": "pt"}. An existing file is overwritten: write beside it and rename where that matters. */
enum status st_create(const char *path, const struct st_decl *decls, int n, struct st_writer **out);
/* n elements of the stream, given as fp32 and stored in the dtype of the tensor they fall into (fp32, bf16); pieces must not cross tensors. */
enum status st_write_f32(struct st_writer *w, const float *data, int64_t n);
enum status st_finish(struct st_writer *w, uint64_t *xxh3); /* frees in any case, on failure removes the file; xxh3 of the whole file if not NULL */
void st_abort(struct st_writer *w);                         /* frees, removes the file; NULL is fine */

#endif
