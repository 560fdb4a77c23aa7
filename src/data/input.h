/* The bytes of a file in their order, decompressed where its name ends in .gz or .zst. Private to this folder.
 *
 * Memory is bounded whatever an archive claims: a few hundred KB, and for .zst a window of 128 MB at most. */
#ifndef LTRAIN_DATA_INPUT_H
#define LTRAIN_DATA_INPUT_H

#include "base/status.h"
#include "data/fingerprint.h"

#include <stddef.h>
#include <stdint.h>

struct input;

/* The length of a path without .gz or .zst; that of the whole where there is neither. */
size_t input_name(const char *path);
int input_is_compressed(const char *path);

/* print: stamp, settled and bytes are filled here, the checksum of the file's own bytes by input_end; NULL: nobody asks for it. Both
 * must outlive it. ERR_INVALID: it cannot be opened, or decompressed by this build. */
enum status input_open(const char *path, struct fingerprint *print, struct input **out);
/* Fewer than n bytes only at the end. ERR_INVALID: an archive is damaged or cut off. */
enum status input_read(struct input *in, uint8_t *buf, size_t n, size_t *got);
/* All was read. ERR_CORRUPT: the file has changed meanwhile. */
enum status input_end(struct input *in);
void input_close(struct input *in);

#endif
