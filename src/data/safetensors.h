/* Reading and writing safetensors files, streaming. */
#ifndef LTRAIN_DATA_SAFETENSORS_H
#define LTRAIN_DATA_SAFETENSORS_H

#include "base/num.h"
#include "base/status.h"

#include <stdint.h>

struct st_file; /* one or several files (model.safetensors, or model.safetensors.index.json with its shards) opened for reading */

/* Opens a file, or a directory with model.safetensors or model.safetensors.index.json. Checks headers, offsets and lengths
 * strictly.
 *
 * If several shards hold a tensor, the copy in the shard named by the index counts. A tensor that is missing from that shard is
 * an error only when somebody asks for it. ERR_CORRUPT: headers contradict each other or the file's length. ERR_INVALID:
 * something is missing or not supported. */
enum status st_open(const char *path, struct st_file **out);
void st_close(struct st_file *f);
/* Returns the number of files that hold tensors (st_files), and the path of file i (st_file_path). */
int st_files(const struct st_file *f);
const char *st_file_path(const struct st_file *f, int i);
/* Hashes the files' sizes, inodes and times of modification: the number changes when one is written to or replaced. */
enum status st_stamp(const struct st_file *f, uint64_t *out);

enum { ST_DIMS = 6 }; /* most dimensions of a tensor that is read or written; a convolution over images and time has five */
struct st_info {
    enum dtype dtype;
    int n_dims;
    int64_t shape[ST_DIMS];
    int64_t elements;
};
int st_count(const struct st_file *f);
const char *st_name(const struct st_file *f, int i);
/* Counts the copies of tensors that are left out because the index names another shard for the tensor; *first: name of the first. */
int st_left_out(const struct st_file *f, const char **first);
int st_has(const struct st_file *f, const char *name);
/* Returns the file that holds the tensor. For NULL or an unknown name: the file or index that was opened. */
const char *st_path(const struct st_file *f, const char *name);
/* Describes a tensor. ERR_INVALID: there is no tensor of that name, or its type is not read (files may hold such tensors, too). */
enum status st_find(const struct st_file *f, const char *name, struct st_info *info);
/* Reads elements [first, first + n) of a tensor (fp32, bf16, fp16, fp64) as fp32 or bf16, rounded to nearest even. *finite:
 * number of elements before the first NaN or infinity, n if there is none. From several threads at once. */
enum status st_read(struct st_file *f, const char *name, int64_t first, int64_t n, enum dtype to, void *out, int64_t *finite);
enum status st_read_f32(struct st_file *f, const char *name, int64_t first, int64_t n, float *out);

/* Type and place of a tensor's bytes. */
struct st_raw {
    const char *path, *type;
    int n_dims;
    int64_t shape[ST_DIMS], at, bytes;
};
/* Finds the bytes of a tensor. ERR_INVALID: there is no tensor of that name, or it has more than ST_DIMS dimensions. */
enum status st_find_raw(const struct st_file *f, const char *name, struct st_raw *out);
/* Reads bytes [first, first + n) of a tensor. From several threads at once. */
enum status st_read_bytes(struct st_file *f, const char *name, int64_t first, int64_t n, void *out);
/* Returns the file's own copy of a tensor's name, valid while the file is open; NULL: there is no such tensor. */
const char *st_own_name(const struct st_file *f, const char *name);
/* Copies n tensors, byte for byte, into a new file, which is synced. An existing file is overwritten; on failure no file is left. */
enum status st_copy(const struct st_file *f, const char *const *names, int n, const char *path);

/* A tensor to be written. type: the type's name in safetensors files, for tensors written by st_write_bytes, which overrides
 * dtype; NULL: dtype's name. */
struct st_decl {
    const char *name;
    enum dtype dtype;
    int n_dims;
    int64_t shape[ST_DIMS];
    const char *type;
};
/* Returns the bits of an element of a type, given by its name in safetensors files; 0: the name is not known. */
int64_t st_type_bits(const char *type);
/* Returns the bytes of all elements of a tensor; -1: too many bytes or dimensions. */
int64_t st_decl_bytes(const struct st_decl *d);
/* Creates a file: writes the header (with metadata {"format": "pt"}), reserves room for the data if the file system can, and
 * syncs. Any number of processes, on any hosts that see the file, then write their own elements.
 *
 * An existing file is overwritten: to keep it until the end, write beside it and rename. On failure no file is left. */
enum status st_create(const char *path, const struct st_decl *decls, int n);
struct st_writer;
/* Opens for writing a file that st_create made of the same declarations; ERR_CORRUPT: its header is another one. */
enum status st_write_open(const char *path, const struct st_decl *decls, int n, struct st_writer **out);
/* Writes elements [first, first + n) of tensor number `tensor` of the declarations, given as fp32 and stored in its dtype (fp32,
 * bf16). */
enum status st_write_f32(struct st_writer *w, int tensor, int64_t first, int64_t n, const float *data);
/* Writes bytes [first, first + n) of a tensor of any type. */
enum status st_write_bytes(struct st_writer *w, int tensor, int64_t first, int64_t n, const void *data);
/* Makes written data durable, and frees w whether or not that succeeds; NULL is fine. The caller must know that all elements were
 * written. */
enum status st_write_finish(struct st_writer *w);
void st_write_abort(struct st_writer *w); /* frees; NULL is fine */

#endif
