/* The bytes of a file in order, decompressed if its name ends in .gz or .zst; the rows of a .parquet as those of a .jsonl. Private
 * to this folder.
 *
 * Memory is bounded whatever an archive claims: a few hundred KB, for .zst a window of 128 MB at most, for .parquet a page of each
 * column (parquet/parquet.h). */
#ifndef LTRAIN_DATA_INPUT_H
#define LTRAIN_DATA_INPUT_H

#include "base/status.h"
#include "data/fingerprint.h"

#include <stddef.h>
#include <stdint.h>

struct input;

/* Returns the length of a path, without the ending .gz or .zst if there is one. */
size_t input_name(const char *path);
/* Tells whether the bytes that are read are others than the file's own. */
int input_is_compressed(const char *path);
int input_is_parquet(const char *path);

/* Opens a file for reading. print: gets stamp, settled and bytes here, and in input_end the checksum of the file's own
 * (compressed) bytes; NULL: not wanted. Path and print must outlive *out. ERR_INVALID: the file cannot be opened, or this build
 * cannot decompress it. */
enum status input_open(const char *path, struct fingerprint *print, struct input **out);
/* Reads n bytes; fewer only at the end. ERR_INVALID: an archive is damaged or cut off. */
enum status input_read(struct input *in, uint8_t *buf, size_t n, size_t *got);
/* Leaves out the columns of a .parquet whose names `reads` denies; before anything is read. */
void input_select(struct input *in, int (*reads)(void *user, const char *name), void *user);
/* Tells whether a .parquet has a column of that name. */
int input_has_column(const struct input *in, const char *name);
/* Refuses a column of a .parquet whose values have a type that rows do not have (parquet_check). */
enum status input_check_column(const struct input *in, const char *name);
/* Finishes the fingerprint after all was read. ERR_CORRUPT: the file has changed meanwhile. */
enum status input_end(struct input *in);
void input_close(struct input *in);

#endif
