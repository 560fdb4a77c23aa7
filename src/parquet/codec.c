/* Decompressing pages by the codec that a column names. */
#include "parquet/codec.h"

#include "build_config.h"

#include <dlfcn.h>
#include <pthread.h>
#include <string.h>
#ifdef HAVE_ZLIB
#include <zlib.h>
#endif
#ifdef HAVE_ZSTD
#include <zstd.h>
#endif

/* ---- Brotli, whose library is opened where a file needs it ---- */

#define BROTLI "libbrotlidec.so.1"

/* BrotliDecoderDecompress, which returns 1 if all went well; *m: room, then number of bytes. */
typedef int brotli_unpack(size_t n, const uint8_t *from, size_t *m, uint8_t *to);
static brotli_unpack *brotli;

static void open_brotli(void)
{
    void *library = dlopen(BROTLI, RTLD_NOW | RTLD_LOCAL), *symbol = library ? dlsym(library, "BrotliDecoderDecompress") : NULL;
    memcpy(&brotli, &symbol, sizeof symbol);
}

static brotli_unpack *find_brotli(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, open_brotli);
    return brotli;
}

/* ---- the others ---- */

enum status codec_check(const char *path, int codec)
{
    static const char *const names[] = {"none", "snappy", "gzip", "lzo", "brotli", "lz4", "zstd", "lz4_raw"};
    const char *why = "which is not read: write it anew, with zstd";
    switch (codec) {
    case CODEC_NONE:
    case CODEC_SNAPPY:
    case CODEC_LZ4:
        return OK;
    case CODEC_GZIP:
#ifdef HAVE_ZLIB
        return OK;
#endif
        why = "and this ltrain was built without zlib: build with zlib1g-dev installed";
        break;
    case CODEC_ZSTD:
#ifdef HAVE_ZSTD
        return OK;
#endif
        why = "and this ltrain was built without libzstd: build with libzstd-dev installed";
        break;
    case CODEC_BROTLI:
        if (find_brotli())
            return OK;
        why = "and there is no " BROTLI ": install it (Debian: libbrotli1), or write the file anew, with zstd";
        break;
    }
    return status_fail(ERR_INVALID, "%s is compressed by %s, %s", path,
                       codec >= 0 && codec < (int)(sizeof names / sizeof *names) ? names[codec] : "an unknown codec", why);
}

static int gzip_unpack(const uint8_t *from, size_t n, uint8_t *to, size_t m)
{
#ifdef HAVE_ZLIB
    enum { GZIP_OR_ZLIB = 32 };
    z_stream z = {.next_in = (Bytef *)(uintptr_t)from, .avail_in = (uInt)n, .next_out = to, .avail_out = (uInt)m};
    if (inflateInit2(&z, MAX_WBITS + GZIP_OR_ZLIB) != Z_OK)
        return 0;
    const int rc = inflate(&z, Z_FINISH);
    inflateEnd(&z);
    return rc == Z_STREAM_END && z.avail_out == 0;
#else
    (void)from, (void)n, (void)to, (void)m;
    return 0;
#endif
}

static int zstd_unpack(const uint8_t *from, size_t n, uint8_t *to, size_t m)
{
#ifdef HAVE_ZSTD
    return ZSTD_decompress(to, m, from, n) == m; /* an error's number is larger */
#else
    (void)from, (void)n, (void)to, (void)m;
    return 0;
#endif
}

int codec_unpack(int codec, const uint8_t *from, size_t n, uint8_t *to, size_t m)
{
    size_t got = m;
    switch (codec) {
    case CODEC_SNAPPY:
        return snappy_unpack(from, n, to, m);
    case CODEC_LZ4:
        return lz4_unpack(from, n, to, m);
    case CODEC_GZIP:
        return gzip_unpack(from, n, to, m);
    case CODEC_ZSTD:
        return zstd_unpack(from, n, to, m);
    case CODEC_BROTLI:
        return find_brotli()(n, from, &got, to) == 1 && got == m;
    default:
        return 0;
    }
}

int codec_is_whole(const uint8_t *page, size_t n, uint32_t crc)
{
#ifdef HAVE_ZLIB
    return crc32(0, page, (uInt)n) == crc;
#else
    (void)page, (void)n, (void)crc;
    return 1;
#endif
}
