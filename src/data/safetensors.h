/* Reading and writing safetensors files, streaming. */
#ifndef LTRAIN_DATA_SAFETENSORS_H
#define LTRAIN_DATA_SAFETENSORS_H

#include "base/num.h"
#include "base/status.h"

#include <stdint.h>

struct st_file; /* one or several files (model.safetensors, or model.safetensors.index.json with its shards) opened for reading */

/* path: a file, or a directory with model.safetensors or model.safetensors.index.json. Checks headers, offsets and lengths strictly: ERR_CORRUPT if they
 * contradict each other or the file's length, ERR_INVALID if something is not there or not supported. Of a tensor that several shards hold, the copy counts that
 * the index names; one that is not where the index has it is an error once it is asked for. */
enum status st_open(const char *path, struct st_file **out);
void st_close(struct st_file *f);
/* The files that hold tensors. */
int st_files(const struct st_file *f);
const char *st_file_path(const struct st_file *f, int i);
/* Of the files' sizes, inodes and times of change: another number once one of them was written to or replaced. */
enum status st_stamp(const struct st_file *f, uint64_t *out);

struct st_info { enum dtype dtype; int n_dims; int64_t shape[4]; int64_t elements; };
int st_count(const struct st_file *f);
const char *st_name(const struct st_file *f, int i);
/* How many tensors lie where the index does not have them, and the first one's name: they are left out. */
int st_left_out(const struct st_file *f, const char **first);
int st_has(const struct st_file *f, const char *name);
/* The file that holds the tensor; NULL or one that there is not: the file or index that was opened. */
const char *st_path(const struct st_file *f, const char *name);
/* ERR_INVALID if there is no such tensor, or it is of a type that is not read (files may hold such tensors beside those asked for). */
enum status st_find(const struct st_file *f, const char *name, struct st_info *info);
/* May be called from several threads. Elements [first, first + n) of a tensor (fp32, bf16, fp16, fp64) as fp32 or bf16, rounded to nearest
 * even. *finite: how many of them come before the first that is NaN or infinite, n if none is. */
enum status st_read(struct st_file *f, const char *name, int64_t first, int64_t n, enum dtype to, void *out, int64_t *finite);
enum status st_read_f32(struct st_file *f, const char *name, int64_t first, int64_t n, float *out);

/* Where a tensor's bytes lie, and as what. */
struct st_raw { const char *path, *type; int n_dims; int64_t shape[4], at, bytes; };
/* ERR_INVALID: there is none, or it has more than four dimensions. */
enum status st_find_raw(const struct st_file *f, const char *name, struct st_raw *out);
/* May be called from several threads. n of its bytes, from `first` on. */
enum status st_read_bytes(struct st_file *f, const char *name, int64_t first, int64_t n, void *out);
/* The file's own copy of a tensor's name, which lives as long as the file is open; NULL: there is no such tensor. */
const char *st_own_name(const struct st_file *f, const char *name);
/* A new file with n tensors as they are, byte for byte, synced. An existing one is overwritten; on failure none is left. */
enum status st_copy(const struct st_file *f, const char *const *names, int n, const char *path);

/* type: as files call it, of a tensor that is written by st_write_bytes, whatever dtype says; NULL: dtype's. */
struct st_decl { const char *name; enum dtype dtype; int n_dims; int64_t shape[4]; const char *type; };
/* Returns the bits of an element of a type that files have; 0: it is not known. */
int64_t st_type_bits(const char *type);
/* Of all its elements; -1: more than there may be, or more dimensions. */
int64_t st_decl_bytes(const struct st_decl *d);
/* A file is made once and then written by any number of processes, on any hosts that see it, each its own elements.
 * st_create: the header (metadata {"format": "pt"}) and room for the data as far as the file system reserves any, synced. An existing file is overwritten: write
 * beside it and rename where that matters. On failure no file is left. */
enum status st_create(const char *path, const struct st_decl *decls, int n);
struct st_writer;
/* Opens what st_create made of the same declarations; ERR_CORRUPT if it has another header. */
enum status st_write_open(const char *path, const struct st_decl *decls, int n, struct st_writer **out);
/* Elements [first, first + n) of the tensor declared as number `tensor`, given as fp32 and stored in its dtype (fp32, bf16). */
enum status st_write_f32(struct st_writer *w, int tensor, int64_t first, int64_t n, const float *data);
/* Bytes [first, first + n) of any tensor. */
enum status st_write_bytes(struct st_writer *w, int tensor, int64_t first, int64_t n, const void *data);
/* Makes what was written durable. Frees in any case; NULL is fine. Whether all elements came from somewhere is for the caller to know. */
enum status st_write_finish(struct st_writer *w);
void st_write_abort(struct st_writer *w); /* frees; NULL is fine */

#endif
