/* Tests safetensors: writing and reading back, a file of the reference implementation, shards, and files that must be refused. */
#include "data/safetensors.h"

#include "base/sys.h"
#include "scratch.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <sys/stat.h>
#include <cmocka.h>

/* Written by Python's safetensors 0.8: w = [[-2.5 .. 2.5]], h = [1, -2, 65504, 2^-24, inf, -0] as fp16, mask of bytes. */
static const char reference[] =
    "\xd0\x00\x00\x00\x00\x00\x00\x00"
    "{\"__metadata__\":{\"format\":\"pt\"},\"w\":{\"dtype\":\"F32\",\"shape\":[2,3],\"data_offsets\":[0,24]},\"h\":{\"dtype\":"
    "\"F16\",\"shape\":[6],"
    "\"data_offsets\":[24,36]},\"mask\":{\"dtype\":\"U8\",\"shape\":[1,2],\"data_offsets\":[36,38]}}      "
    "\x00\x00 \xc0\x00\x00\xc0\xbf\x00\x00\x00\xbf\x00\x00\x00?\x00\x00\xc0?\x00\x00 @"
    "\x00<\x00\xc0\xff{\x01\x00\x00|\x00\x80\x01\x00";

static struct st_file *open_file(const char *path)
{
    struct st_file *f = NULL;
    if (st_open(path, &f) != OK)
        fail_msg("%s", status_message());
    return f;
}

static void refuse(const char *path, enum status code, const char *part)
{
    struct st_file *f = NULL;
    enum status st = st_open(path, &f);
    if (st != code || !strstr(status_message(), part))
        fail_msg("status %d, '%s' does not say '%s'", st, status_message(), part);
    assert_null(f);
}

/* Writes a file with this header and `data` zero bytes behind it. */
static const char *put(const char *header, size_t data)
{
    static char bytes[4096];
    uint64_t n = strlen(header);
    memset(bytes, 0, sizeof bytes);
    memcpy(bytes, &n, 8);
    memcpy(bytes + 8, header, n);
    return scratch_write("case.safetensors", bytes, 8 + n + data);
}

static void test_reference(void **state)
{
    (void)state;
    struct st_file *f = open_file(scratch_write("ref.safetensors", reference, sizeof reference - 1));
    struct st_info info;
    float x[6];
    assert_int_equal(st_count(f), 3);
    assert_string_equal(st_name(f, 0), "h");
    assert_string_equal(st_name(f, 2), "w");
    assert_int_equal(st_find(f, "w", &info), OK);
    assert_true(info.dtype == F32 && info.n_dims == 2 && info.shape[0] == 2 && info.shape[1] == 3 && info.elements == 6);
    assert_int_equal(st_read_f32(f, "w", 0, 6, x), OK);
    for (int i = 0; i < 6; i++)
        assert_true(x[i] == (float)i - 2.5f);
    assert_int_equal(st_read_f32(f, "w", 4, 2, x), OK);
    assert_true(x[0] == 1.5f && x[1] == 2.5f);
    assert_int_equal(st_find(f, "h", &info), OK);
    assert_true(info.dtype == F16 && info.n_dims == 1 && info.elements == 6);
    assert_int_equal(st_read_f32(f, "h", 0, 6, x), OK);
    assert_true(x[0] == 1.0f && x[1] == -2.0f && x[2] == 65504.0f && x[3] == 0x1p-24f && isinf(x[4]) && x[5] == 0.0f &&
                signbit(x[5]));
    assert_int_equal(st_find(f, "mask", &info), ERR_INVALID);
    assert_non_null(strstr(status_message(), "mask is stored as U8"));
    assert_int_equal(st_find(f, "x", &info), ERR_INVALID);
    assert_non_null(strstr(status_message(), "there is no tensor x"));
    assert_int_equal(st_read_f32(f, "x", 0, 1, x), ERR_INVALID);
    assert_int_equal(st_read_f32(f, "w", 5, 2, x), ERR_INVALID);
    assert_int_equal(st_read_f32(f, "w", -1, 2, x), ERR_INVALID);
    assert_int_equal(st_read_f32(f, "w", 7, INT64_MAX, x), ERR_INVALID);
    assert_int_equal(st_read_f32(f, "w", 6, 0, x), OK);
    st_close(f);
    st_close(NULL);
}

enum { BIG = 2 * (1 << 16) + 3 }; /* more elements than one chunk of conversion */

static struct st_writer *open_writer(const char *path, const struct st_decl *decls, int n)
{
    struct st_writer *w = NULL;
    assert_int_equal(st_write_open(path, decls, n, &w), OK);
    return w;
}

/* The stamp of unchanged files stays the same. It differs if their times or sizes differ, or if other files have their names. */
static void test_stamp(void **state)
{
    (void)state;
    const char *path = scratch_write("stamp.safetensors", reference, sizeof reference - 1);
    uint64_t stamp[4];
    for (int i = 0; i < 4; i++) {
        struct st_file *f = open_file(path);
        assert_int_equal(st_stamp(f, &stamp[i]), OK);
        st_close(f);
        const struct timespec times[2] = {{.tv_sec = 1000 + i}, {.tv_sec = 1000 + i}};
        if (i > 0)
            assert_int_equal(utimensat(AT_FDCWD, path, times, 0), 0);
    }
    assert_true(stamp[0] == stamp[1] && stamp[1] != stamp[2] && stamp[2] != stamp[3]);
}

/* Writes elements of a tensor from the last piece to the first. */
static void write_pieces(struct st_writer *w, int tensor, const float *x, int64_t n, int64_t piece)
{
    for (int64_t at = (n - 1) / piece * piece; at >= 0; at -= piece)
        assert_int_equal(st_write_f32(w, tensor, at, at + piece < n ? piece : n - at, x + at), OK);
}

static void test_round_trip(void **state)
{
    (void)state;
    static float x[BIG], y[BIG];
    for (int i = 0; i < BIG; i++)
        x[i] = sinf((float)i) * ldexpf(1.0f, i % 60 - 30);
    static const struct st_decl decls[] = {{"a", F32, 2, {3, 5}},
                                           {"empty", F32, 1, {0}},
                                           {"scalar", F32, 0, {0}},
                                           {"b \"quoted\" \xc3\xa4", BF16, 1, {BIG}},
                                           {"c", BF16, 2, {2, 1}}};
    const char *path = scratch_path("out.safetensors");
    assert_int_equal(st_create(path, decls, 5), OK);
    struct st_writer *w = open_writer(path, decls, 5), *v = open_writer(path, decls, 5); /* two writers at once, in any order */
    write_pieces(v, 4, x + 1, 2, 2);
    write_pieces(w, 3, x, BIG / 2, 100000);
    assert_int_equal(st_write_f32(v, 3, BIG / 2, BIG - BIG / 2, x + BIG / 2), OK);
    write_pieces(w, 2, x + 7, 1, 1);
    write_pieces(v, 0, x, 15, 4);
    assert_int_equal(st_write_f32(v, 1, 0, 0, x), OK);
    assert_int_equal(st_write_finish(w), OK);
    assert_int_equal(st_write_finish(v), OK);

    static char bytes[4 * BIG];
    FILE *file = fopen(path, "rb");
    size_t n = fread(bytes, 1, sizeof bytes, file);
    uint64_t header;
    fclose(file);
    memcpy(&header, bytes, 8);
    assert_true(header % 8 == 0 && n == 8 + header + 15 * 4 + 4 + 2 * BIG + 4);

    struct st_file *f = open_file(path);
    struct st_info info;
    assert_int_equal(st_count(f), 5);
    assert_int_equal(st_read_f32(f, "a", 0, 15, y), OK);
    assert_memory_equal(x, y, 15 * 4);
    assert_int_equal(st_find(f, "empty", &info), OK);
    assert_true(info.elements == 0 && info.n_dims == 1);
    assert_int_equal(st_find(f, "scalar", &info), OK);
    assert_true(info.elements == 1 && info.n_dims == 0);
    assert_int_equal(st_find(f, decls[3].name, &info), OK);
    assert_true(info.dtype == BF16 && info.elements == BIG);
    assert_int_equal(st_read_f32(f, decls[3].name, 0, BIG, y), OK);
    for (int i = 0; i < BIG; i++)
        assert_true(y[i] == bf16_to_float(bf16_from_float(x[i])));
    assert_int_equal(st_read_f32(f, decls[3].name, 1001, 7, y), OK);
    assert_true(y[0] == bf16_to_float(bf16_from_float(x[1001])) && y[6] == bf16_to_float(bf16_from_float(x[1007])));
    st_close(f);
}

/* Every fp16 value is read as the number that ldexp gives. */
static void test_half(void **state)
{
    (void)state;
    static char bytes[8 + 128 + 2 * 65536];
    static float y[65536];
    int n = snprintf(bytes + 8, 128, "{\"h\":{\"dtype\":\"F16\",\"shape\":[65536],\"data_offsets\":[0,131072]}}");
    uint64_t header = (uint64_t)n;
    memcpy(bytes, &header, 8);
    for (int i = 0; i < 65536; i++) {
        uint16_t h = (uint16_t)i;
        memcpy(bytes + 8 + n + 2 * i, &h, 2);
    }
    struct st_file *f = open_file(scratch_write("half.safetensors", bytes, 8 + (size_t)n + 131072));
    assert_int_equal(st_read_f32(f, "h", 0, 65536, y), OK);
    for (int i = 0; i < 65536; i++) {
        int exponent = i >> 10 & 31, fraction = i & 1023;
        double expected = exponent == 31 ? (fraction ? (double)NAN : (double)INFINITY)
                          : exponent     ? ldexp(1024 + fraction, exponent - 25)
                                         : ldexp(fraction, -24);
        assert_true(isnan(expected) ? isnan(y[i]) : (double)y[i] == (i & 0x8000 ? -expected : expected));
        assert_true(isnan(expected) || !signbit(y[i]) == !(i & 0x8000));
    }
    st_close(f);
}

/* fp64 values are rounded to nearest, with ties to even; beyond the range of fp32 they become infinite. */
static void test_double(void **state)
{
    enum { N = 10000 };
    (void)state;
    static char bytes[8 + 128 + 8 * N];
    static float y[N];
    static const double special[] = {1 + 0x1p-24, 1 + 3 * 0x1p-24, 1e300, -0.0, NAN, 0x1p-149, -1.5};
    static const float rounded[] = {1, 1 + 0x1p-22f, INFINITY, -0.0f, NAN, 0x1p-149f, -1.5f};
    int n = snprintf(bytes + 8, 128, "{\"d\":{\"dtype\":\"F64\",\"shape\":[%d],\"data_offsets\":[0,%d]}}", N, 8 * N);
    uint64_t header = (uint64_t)n;
    memcpy(bytes, &header, 8);
    for (int i = 0; i < N; i++) {
        double d = i < N - 7 ? i / 3.0 : special[i - (N - 7)];
        memcpy(bytes + 8 + n + 8 * i, &d, 8);
    }
    struct st_file *f = open_file(scratch_write("double.safetensors", bytes, 8 + (size_t)n + 8 * N));
    struct st_info info;
    assert_int_equal(st_find(f, "d", &info), OK);
    assert_int_equal(info.dtype, F64);
    assert_int_equal(st_read_f32(f, "d", 1, N - 1, y + 1), OK);
    for (int i = 1; i < N - 7; i++)
        assert_true(y[i] == (float)(i / 3.0));
    for (int i = 0; i < 7; i++)
        assert_true(i == 4 ? isnan(y[N - 3]) : memcmp(&y[N - 7 + i], &rounded[i], 4) == 0);
    st_close(f);
}

/* A file may contain every type of safetensors 0.8.0. 32 elements of each type are copied byte for byte; only floating types can
 * be read as numbers. */
static void test_all_types(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        int bits, is_read;
    } types[] = {{"BOOL", 8},    {"F4", 4},      {"F6_E2M3", 6},  {"F6_E3M2", 6},     {"U8", 8},          {"I8", 8},
                 {"F8_E5M2", 8}, {"F8_E4M3", 8}, {"F8_E8M0", 8},  {"F8_E4M3FNUZ", 8}, {"F8_E5M2FNUZ", 8}, {"I16", 16},
                 {"U16", 16},    {"F16", 16, 1}, {"BF16", 16, 1}, {"I32", 32},        {"U32", 32},        {"F32", 32, 1},
                 {"C64", 64},    {"F64", 64, 1}, {"I64", 64},     {"U64", 64}};
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        char header[256];
        const int bytes = 4 * types[i].bits;
        struct st_info info;
        struct st_raw raw;
        snprintf(header, sizeof header, "{\"x\":{\"dtype\":\"%s\",\"shape\":[4,8],\"data_offsets\":[0,%d]}}", types[i].name,
                 bytes);
        struct st_file *f = open_file(put(header, (size_t)bytes));
        assert_int_equal(st_find(f, "x", &info), types[i].is_read ? OK : ERR_INVALID);
        if (!types[i].is_read)
            assert_non_null(strstr(status_message(), types[i].name));
        assert_int_equal(st_find_raw(f, "x", &raw), OK);
        assert_true(raw.bytes == bytes && strcmp(raw.type, types[i].name) == 0 && st_type_bits(raw.type) == types[i].bits);
        const struct st_decl again = {.name = "x", .n_dims = 2, .shape = {4, 8}, .type = types[i].name};
        assert_int_equal(st_decl_bytes(&again), bytes);
        const char *const name = "x", *copied = scratch_path("copied.safetensors");
        assert_int_equal(st_copy(f, &name, 1, copied), OK);
        st_close(f);
        f = open_file(copied);
        assert_int_equal(st_find_raw(f, "x", &raw), OK);
        assert_true(raw.bytes == bytes && strcmp(raw.type, types[i].name) == 0);
        st_close(f);
        snprintf(header, sizeof header, "{\"x\":{\"dtype\":\"%s\",\"shape\":[4,8],\"data_offsets\":[0,%d]}}", types[i].name,
                 bytes + 1);
        refuse(put(header, (size_t)bytes + 1), ERR_CORRUPT, "do not fit its shape and dtype");
    }
    refuse(put("{\"x\":{\"dtype\":\"F4\",\"shape\":[3],\"data_offsets\":[0,1]}}", 1), ERR_CORRUPT,
           "do not fit its shape and dtype");
    refuse(put("{\"x\":{\"dtype\":\"F3\",\"shape\":[8],\"data_offsets\":[0,3]}}", 3), ERR_INVALID, "dtype F3 is not known");
    const struct st_decl third = {.name = "x", .n_dims = 1, .shape = {3}, .type = "F4"};
    assert_int_equal(st_decl_bytes(&third), -1);
}

static void test_bad_files(void **state)
{
    (void)state;
#define T(name, dtype, shape, begin, end) \
    "\"" name "\":{\"dtype\":\"" dtype "\",\"shape\":" shape ",\"data_offsets\":[" #begin "," #end "]}"
    static const struct {
        const char *header;
        size_t data;
        enum status code;
        const char *part;
    } cases[] = {
        {"{" T("a", "F32", "[2]", 0, 8) "}", 7, ERR_CORRUPT, "outside the file"},
        {"{" T("a", "F32", "[2]", 0, 8) "}", 9, ERR_CORRUPT, "the tensors hold 8 bytes, the file 9"},
        {"{" T("a", "F32", "[2]", 0, 8) "," T("b", "F32", "[2]", 4, 12) "}", 12, ERR_CORRUPT, "tensor b: its data overlaps"},
        {"{" T("a", "F32", "[2]", 0, 8) "," T("b", "F32", "[2]", 0, 8) "}", 8, ERR_CORRUPT, "overlaps"},
        {"{" T("a", "F32", "[2]", 0, 8) "," T("b", "F32", "[2]", 12, 20) "}", 20, ERR_CORRUPT, "a hole before"},
        {"{" T("a", "F32", "[2]", 4, 12) "}", 12, ERR_CORRUPT, "a hole before"},
        {"{" T("a", "F32", "[3]", 0, 8) "}", 8, ERR_CORRUPT, "do not fit its shape"},
        {"{" T("a", "BF16", "[2]", 0, 8) "}", 8, ERR_CORRUPT, "do not fit its shape"},
        {"{" T("a", "F32", "[2]", 8, 0) "}", 8, ERR_CORRUPT, "outside the file"},
        {"{" T("a", "F32", "[2]", -8, 0) "}", 8, ERR_CORRUPT, "outside the file"},
        {"{" T("a", "F32", "[-2]", 0, 8) "}", 8, ERR_CORRUPT, "whole numbers"},
        {"{" T("a", "F32", "[2.0]", 0, 8) "}", 8, ERR_CORRUPT, "whole numbers"},
        {"{" T("a", "F32", "[4294967296,4294967296]", 0, 8) "}", 8, ERR_CORRUPT, "whole numbers"},
        {"{" T("a", "F32", "[4611686018427387904]", 0, 0) "}", 0, ERR_CORRUPT, "do not fit"},
        {"{" T("a", "F31", "[2]", 0, 8) "}", 8, ERR_INVALID, "dtype F31 is not known"},
        {"{" T("a", "F32", "2", 0, 8) "}", 8, ERR_CORRUPT, "must have dtype, shape"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[2]}}", 8, ERR_CORRUPT, "must have dtype, shape"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8],\"x\":1}}", 8, ERR_CORRUPT, "nothing else"},
        {"{\"a\":7}", 8, ERR_CORRUPT, "must have dtype, shape"},
        {"{" T("a", "F32", "[1]", 0, 4) "," T("a", "F32", "[1]", 4, 8) "}", 8, ERR_CORRUPT, "duplicate"},
        {"{\"__metadata__\":{\"a\":1}}", 0, ERR_CORRUPT, "must be a string"},
        {"{\"__metadata__\":1}", 0, ERR_CORRUPT, "must be an object"},
        {"[1]", 0, ERR_CORRUPT, "not a JSON object"},
        {" {}", 0, ERR_CORRUPT, "not a JSON object"},
        {"", 0, ERR_CORRUPT, "not a JSON object"},
        {"{\"a\":", 8, ERR_CORRUPT, "not valid JSON"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        refuse(put(cases[i].header, cases[i].data), cases[i].code, cases[i].part);
    struct st_file *f = open_file(put("{}", 0));
    assert_int_equal(st_count(f), 0);
    struct st_info info;
    assert_int_equal(st_find(f, "a", &info), ERR_INVALID);
    st_close(f);
    f = open_file(put("{" T("seven", "F32", "[1,1,1,1,1,1,1]", 0, 4) "}", 4));
    assert_int_equal(st_find(f, "seven", &info), ERR_INVALID);
    assert_non_null(strstr(status_message(), "7 dimensions"));
    st_close(f);
    /* a file cut short anywhere is never accepted */
    for (size_t n = 0; n < sizeof reference - 1; n++)
        refuse(scratch_write("cut.safetensors", reference, n), ERR_CORRUPT, "cut.safetensors");
    static const char huge[16] = "\xff\xff\xff\xff\xff\xff\xff\x7f{}";
    refuse(scratch_write("huge.safetensors", huge, sizeof huge), ERR_CORRUPT, "format's limit");
    refuse(scratch_path("absent"), ERR_INVALID, "cannot open");
    refuse(scratch, ERR_INVALID, "has neither model.safetensors nor");
}

static void test_shards(void **state)
{
    (void)state;
    static const struct st_decl first[] = {{"a", F32, 1, {2}}, {"b", F32, 1, {2}}},
                                second[] = {{"c", BF16, 1, {2}}, {"b", F32, 1, {1}}};
    static const float x[] = {1, 2};
    struct st_writer *w;
    scratch_mkdir("sharded");
    char path[128];
    for (int n = 0; n <= 2; n++) { /* model-2 has c, model-3 has c and b */
        const struct st_decl *decls = n == 0 ? first : second;
        snprintf(path, sizeof path, "%s/sharded/model-%d.safetensors", scratch, n + 1);
        assert_int_equal(st_create(path, decls, n == 0 ? 2 : n), OK);
        w = open_writer(path, decls, n == 0 ? 2 : n);
        write_pieces(w, 0, x, 2, 2);
        if (n != 1)
            write_pieces(w, 1, x, n == 0 ? 2 : 1, 2);
        assert_int_equal(st_write_finish(w), OK);
    }
#define INDEX "sharded/model.safetensors.index.json"
    scratch_text(
        INDEX,
        "{\"metadata\": {\"total_size\": 20}, \"weight_map\": {\"a\": \"model-1.safetensors\", \"b\": \"model-1.safetensors\", "
        "\"c\": \"model-2.safetensors\"}}");
    const char *paths[] = {scratch_path("sharded"), scratch_path("sharded/"), scratch_path(INDEX)};
    for (int i = 0; i < 3; i++) {
        struct st_file *f = open_file(paths[i]);
        float y[2] = {0};
        assert_int_equal(st_count(f), 3);
        assert_int_equal(st_read_f32(f, "c", 0, 2, y), OK);
        assert_memory_equal(x, y, sizeof x);
        assert_int_equal(st_read_f32(f, "b", 1, 1, y), OK);
        assert_true(y[0] == 2.0f);
        st_close(f);
    }
    char dir[128];
    snprintf(dir, sizeof dir, "%s/sharded", scratch);
    /* a tensor that is missing from the file named by the index is an error when it is asked for */
    scratch_text(INDEX, "{\"weight_map\": {\"b\": \"model-2.safetensors\", \"d\": \"model-1.safetensors\"}}");
    struct st_file *f = open_file(dir);
    struct st_info info;
    assert_int_equal(st_count(f), 2); /* a, c */
    const char *left_out;
    assert_int_equal(st_left_out(f, &left_out), 1);
    assert_string_equal(left_out, "b");
    for (const char *name = "d"; name; name = *name == 'd' ? "b" : NULL) {
        assert_false(st_has(f, name));
        assert_int_equal(st_find(f, name, &info), ERR_CORRUPT);
        assert_non_null(strstr(status_message(), "model.safetensors.index.json: tensor "));
        assert_non_null(strstr(status_message(), "where the index has it"));
    }
    assert_string_equal(strrchr(st_path(f, "a"), '/'), "/model-1.safetensors");
    assert_string_equal(strrchr(st_path(f, "b"), '/'), "/model.safetensors.index.json");
    st_close(f);
    /* the index decides which of two copies is read */
    for (int i = 1; i <= 3; i += 2) {
        char index[256];
        snprintf(index, sizeof index,
                 "{\"weight_map\": {\"a\": \"model-1.safetensors\", \"c\": \"model-3.safetensors\", \"b\": "
                 "\"model-%d.safetensors\"}}",
                 i);
        scratch_text(INDEX, index);
        f = open_file(dir);
        assert_int_equal(st_count(f), 3);
        assert_int_equal(st_left_out(f, &left_out), 1);
        assert_int_equal(st_find(f, "b", &info), OK);
        assert_int_equal(info.elements, i == 1 ? 2 : 1);
        st_close(f);
    }
    scratch_text(INDEX, "{\"weight_map\": {\"a\": \"model-1.safetensors\", \"c\": \"model-3.safetensors\"}}");
    refuse(dir, ERR_CORRUPT, "tensor b is in both");
    scratch_text(INDEX, "{\"weight_map\": {\"a\": \"model-4.safetensors\"}}");
    refuse(dir, ERR_INVALID, "model-4.safetensors: No such file");
    scratch_text(INDEX, "{\"weight_map\": {\"a\": \"../sharded/model-1.safetensors\"}}");
    refuse(dir, ERR_CORRUPT, "without a directory");
    scratch_text(INDEX, "{\"weight_map\": {}}");
    refuse(dir, ERR_CORRUPT, "weight_map is missing or empty");
    scratch_text(INDEX, "{\"weight_map\": {\"a\": 1}}");
    refuse(dir, ERR_CORRUPT, "weight_map must give file names");
    scratch_text(INDEX, "nonsense");
    refuse(dir, ERR_CORRUPT, "not a JSON object");
    scratch_write("sharded/model.safetensors", reference, sizeof reference - 1); /* the single file comes first */
    f = open_file(dir);
    assert_int_equal(st_count(f), 3);
    assert_string_equal(st_name(f, 1), "mask");
    st_close(f);
}

static void test_writer_refusals(void **state)
{
    (void)state;
    static const float x[8] = {0};
    static const struct st_decl decls[] = {{"a", BF16, 1, {3}}, {"b", BF16, 1, {4}}};
    const char *path = scratch_path("refused.safetensors");
    struct st_writer *w = NULL;
    assert_int_equal(st_write_open(path, decls, 2, &w), ERR_IO); /* the file was not created before */
    assert_int_equal(st_create(path, decls, 2), OK);
    w = open_writer(path, decls, 2);
    assert_int_equal(st_write_f32(w, 0, 0, 4, x), ERR_INVALID); /* crosses */
    assert_int_equal(st_write_f32(w, 0, 3, 1, x), ERR_INVALID);
    assert_int_equal(st_write_f32(w, 1, -1, 2, x), ERR_INVALID);
    assert_int_equal(st_write_f32(w, 1, 5, -1, x), ERR_INVALID);
    assert_int_equal(st_write_f32(w, 2, 0, 1, x), ERR_INVALID);
    assert_non_null(strstr(status_message(), "tensor 2 of 2"));
    assert_int_equal(st_write_f32(w, 1, 4, 0, x), OK);
    st_write_abort(w);
    st_write_abort(NULL);
    assert_int_equal(st_write_finish(NULL), OK);
    assert_int_equal(st_write_open(path, decls, 1, &w), ERR_CORRUPT);
    assert_non_null(strstr(status_message(), "another header"));
    unlink(path);
    static const struct st_decl twice[] = {{"a", F32, 1, {3}}, {"a", F32, 1, {4}}}, half[] = {{"a", F16, 1, {3}}},
                                odd[] = {{"a", BF16, 1, {3}}, {"b", F32, 1, {4}}};
    static const struct st_decl large[] = {{"a", F32, 2, {INT64_MAX, 3}}}, reserved[] = {{"__metadata__", F32, 1, {1}}};
    assert_int_equal(st_create(path, twice, 2), ERR_INVALID);
    assert_int_equal(st_create(path, half, 1), ERR_INVALID);
    assert_int_equal(st_create(path, odd, 2), ERR_INVALID);
    assert_int_equal(st_create(path, large, 1), ERR_INVALID);
    assert_int_equal(st_create(path, reserved, 1), ERR_INVALID);
    assert_int_not_equal(access(path, F_OK), 0);
    assert_int_equal(st_create(scratch_path("no/such/directory"), decls, 2), ERR_IO);
}

static enum status write_all(const char *path)
{
    static const float x[8] = {1};
    static const struct st_decl decls[] = {{"a", F32, 1, {3}}, {"b", BF16, 1, {8}}};
    struct st_writer *w;
    TRY(st_create(path, decls, 2));
    TRY(st_write_open(path, decls, 2, &w));
    enum status st = st_write_f32(w, 0, 0, 3, x);
    if (st == OK)
        st = st_write_f32(w, 1, 0, 8, x);
    if (st == OK)
        return st_write_finish(w);
    st_write_abort(w);
    return st;
}

/* Each system call fails once: an error is returned, an unfinished file is removed, and nothing leaks (which ASan checks).
 * Transfers of half the bytes are no error. */
static void test_faults(void **state)
{
    (void)state;
    static const enum sys_call writing[] = {SYS_OPEN, SYS_PWRITE, SYS_FSYNC, SYS_CLOSE, SYS_MALLOC, SYS_FALLOCATE, SYS_PREAD},
                               reading[] = {SYS_OPEN, SYS_PREAD, SYS_MALLOC};
    const char *path = scratch_path("faults.safetensors");
    for (int k = 0; k < 7; k++) {
        sys_inject_clear();
        assert_int_equal(write_all(path), OK);
        long n = sys_count(writing[k]);
        for (int i = 1; i <= n; i++) {
            unlink(path);
            sys_inject(writing[k], i, EIO);
            assert_int_not_equal(write_all(path), OK);
            if (writing[k] == SYS_PWRITE) {
                sys_inject(writing[k], i, SYS_SHORT);
                assert_int_equal(write_all(path), OK);
                st_close(open_file(path));
            }
        }
    }
    for (int k = 0; k < 6; k++) { /* counts only the calls that create the file */
        static const struct st_decl decls[] = {{"a", F32, 1, {3}}};
        for (int i = 1, fired = 1; fired; i++) {
            sys_inject_clear();
            unlink(path);
            sys_inject(writing[k], i, ENOSPC);
            enum status st = st_create(path, decls, 1);
            fired = sys_count(writing[k]) >= i;
            assert_int_equal(st != OK, fired);
            assert_int_equal(access(path, F_OK) != 0, fired);
        }
        sys_inject_clear();
        sys_inject(SYS_FALLOCATE, 1, EOPNOTSUPP);
        assert_int_equal(st_create(path, decls, 1), OK);
    }
    sys_inject_clear();
    assert_int_equal(write_all(path), OK);
    for (int k = 0; k < 3; k++) {
        sys_inject_clear();
        st_close(open_file(path));
        long n = sys_count(reading[k]);
        for (int i = 1; i <= n; i++) {
            struct st_file *f = NULL;
            sys_inject(reading[k], i, EIO);
            assert_int_not_equal(st_open(path, &f), OK);
            assert_null(f);
        }
    }
    struct st_file *f = open_file(path);
    float y[8];
    sys_inject(SYS_PREAD, 1, SYS_SHORT);
    assert_int_equal(st_read_f32(f, "b", 0, 8, y), OK);
    assert_true(y[0] == 1.0f);
    sys_inject(SYS_PREAD, 1, EIO);
    assert_int_equal(st_read_f32(f, "b", 0, 8, y), ERR_IO);
    sys_inject_clear();
    assert_int_equal(truncate(path, 100), 0);
    assert_int_equal(st_read_f32(f, "b", 0, 8, y), ERR_CORRUPT);
    st_close(f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_reference), cmocka_unit_test(test_stamp),  cmocka_unit_test(test_round_trip),
        cmocka_unit_test(test_half),      cmocka_unit_test(test_double), cmocka_unit_test(test_all_types),
        cmocka_unit_test(test_bad_files), cmocka_unit_test(test_shards), cmocka_unit_test(test_writer_refusals),
        cmocka_unit_test(test_faults),
    };
    return cmocka_run_group_tests(tests, scratch_create, scratch_destroy);
}
