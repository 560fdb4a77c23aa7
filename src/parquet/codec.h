/* Decompressing pages. Private to this folder. */
#ifndef LTRAIN_PARQUET_CODEC_H
#define LTRAIN_PARQUET_CODEC_H

#include "base/status.h"

#include <stddef.h>
#include <stdint.h>

/* Codecs, numbered as in files. */
enum parquet_codec { CODEC_NONE, CODEC_SNAPPY, CODEC_GZIP, CODEC_LZO, CODEC_BROTLI, CODEC_LZ4_FRAMED, CODEC_ZSTD, CODEC_LZ4 };

/* Refuses a codec that this program cannot decompress, and says what to do. ERR_INVALID names path. */
enum status codec_check(const char *path, int codec);
/* Decompresses n bytes into exactly m; returns 0 if that is not what they are. */
int codec_unpack(int codec, const uint8_t *from, size_t n, uint8_t *to, size_t m);
/* Makes sure that a page has its checksum; 1 also where this program has no zlib. */
int codec_is_whole(const uint8_t *page, size_t n, uint32_t crc);

/* Decompresses Snappy's raw format and LZ4's blocks, as codec_unpack does. */
int snappy_unpack(const uint8_t *from, size_t n, uint8_t *to, size_t m);
int lz4_unpack(const uint8_t *from, size_t n, uint8_t *to, size_t m);

#endif
