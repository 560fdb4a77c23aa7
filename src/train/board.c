#include "train/board.h"

#include "base/clock.h"
#include "base/sys.h"
#include "base/tell.h"

#include <errno.h>
#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Fields of the messages, by tensorflow/core/util/event.proto and framework/summary.proto. */
enum {
    EVENT_WALL_TIME = 1,
    EVENT_STEP = 2,
    EVENT_FILE_VERSION = 3,
    EVENT_SUMMARY = 5,
    EVENT_SESSION_LOG = 7,
    SESSION_STATUS = 1,
    SESSION_START = 1,
    SUMMARY_VALUE = 1,
    VALUE_TAG = 1,
    VALUE_SIMPLE = 2,
};
enum wire_type { WIRE_VARINT = 0, WIRE_64 = 1, WIRE_BYTES = 2, WIRE_32 = 5 };

struct board {
    FILE *f;
    char *path;
    int failed; /* 1: a write has failed, which was reported */
};

/* ---- messages ---- */

struct message {
    unsigned char of[8192];
    size_t n;
};

static void put_bytes(struct message *m, const void *data, size_t n)
{
    if (m->n + n <= sizeof m->of)
        memcpy(m->of + m->n, data, n);
    m->n += n; /* a message that is too long is not written */
}

static void put_varint(struct message *m, uint64_t x)
{
    for (; x >= 128; x >>= 7)
        put_bytes(m, &(unsigned char){(unsigned char)(x | 128)}, 1);
    put_bytes(m, &(unsigned char){(unsigned char)x}, 1);
}

static void put_key(struct message *m, int field, enum wire_type type)
{
    put_varint(m, (uint64_t)field << 3 | type);
}

static void put_text(struct message *m, int field, const void *text, size_t n)
{
    put_key(m, field, WIRE_BYTES);
    put_varint(m, n);
    put_bytes(m, text, n);
}

/* Begins an event of now; x86-64 stores numbers as the format does, least byte first. */
static void begin_event(struct message *m, int64_t step)
{
    const double now = (double)clock_wall_ns() * 1e-9;
    m->n = 0;
    put_key(m, EVENT_WALL_TIME, WIRE_64);
    put_bytes(m, &now, sizeof now);
    put_key(m, EVENT_STEP, WIRE_VARINT);
    put_varint(m, (uint64_t)step);
}

/* ---- records ---- */

/* Computes the masked CRC-32C that a record has of its length and of its data. */
static uint32_t masked_crc(const void *data, size_t n)
{
    const unsigned char *at = data;
    uint32_t crc = ~0u;
    for (size_t i = 0; i < n; i++) {
        crc ^= at[i];
        for (int bit = 0; bit < 8; bit++)
            crc = crc >> 1 ^ (0x82f63b78u & -(crc & 1));
    }
    crc = ~crc;
    return (crc >> 15 | crc << 17) + 0xa282ead8u;
}

/* Writes a message as a record. Returns 0 if it fails. */
static int write_record(FILE *f, const struct message *m)
{
    const uint64_t length = m->n;
    const uint32_t of_length = masked_crc(&length, sizeof length), of_data = masked_crc(m->of, m->n <= sizeof m->of ? m->n : 0);
    if (m->n > sizeof m->of)
        return 1;
    return fwrite(&length, sizeof length, 1, f) == 1 && fwrite(&of_length, sizeof of_length, 1, f) == 1 &&
           fwrite(m->of, 1, m->n, f) == m->n && fwrite(&of_data, sizeof of_data, 1, f) == 1 && fflush(f) == 0;
}

/* ---- files ---- */

static enum status refuse(struct board *b, const char *path, int error)
{
    board_close(b);
    return status_fail(ERR_IO, "--tensorboard: cannot write %s: %s", path, sys_strerror(error));
}

enum status board_open(const char *run, int64_t step, struct board **out)
{
    static const char version[] = "brain.Event:2";
    char path[4300];
    struct message m;
    struct board *b = sys_calloc(1, sizeof *b);
    if (!b)
        return status_fail(ERR_NOMEM, "out of memory for --tensorboard");
    snprintf(path, sizeof path, "%.4000s/tensorboard", run);
    if (sys_mkdir(path, 0777) != 0 && errno != EEXIST)
        return refuse(b, path, errno);
    snprintf(path, sizeof path, "%.4000s/tensorboard/events.out.tfevents.%010lld.%d.ltrain", run,
             (long long)(clock_wall_ns() / 1000000000), (int)getpid());
    b->path = strdup(path);
    b->f = b->path ? sys_write_text(path) : NULL;
    if (!b->f)
        return refuse(b, path, b->path ? errno : ENOMEM);
    begin_event(&m, 0);
    put_text(&m, EVENT_FILE_VERSION, version, strlen(version));
    int whole = write_record(b->f, &m);
    const unsigned char start[] = {SESSION_STATUS << 3 | WIRE_VARINT, SESSION_START};
    begin_event(&m, step + 1);
    put_text(&m, EVENT_SESSION_LOG, start, sizeof start);
    whole &= write_record(b->f, &m);
    if (!whole)
        return refuse(b, path, errno);
    *out = b;
    return OK;
}

/* Returns the group of charts to which a key belongs. */
static const char *group_of(const char *key)
{
    static const char *const groups[][2] = {
        {"eval_", "eval"},   {"expert", "experts"}, {"aux_", "experts"},    {"device_", "memory"}, {"host_", "memory"},
        {"nvme_", "memory"}, {"loss", "train"},     {"grad_norm", "train"}, {"lr", "train"},       {"seq_len", "train"}};
    for (size_t i = 0; i < sizeof groups / sizeof *groups; i++)
        if (strncmp(key, groups[i][0], strlen(groups[i][0])) == 0)
            return groups[i][1];
    return "speed";
}

static void put_scalar(struct message *m, const char *key, double x)
{
    char tag[96];
    const float value = (float)x;
    struct message scalar = {.n = 0};
    const int n = snprintf(tag, sizeof tag, "%s/%s", group_of(key), key);
    put_text(&scalar, VALUE_TAG, tag, (size_t)n);
    put_key(&scalar, VALUE_SIMPLE, WIRE_32);
    put_bytes(&scalar, &value, sizeof value);
    put_text(m, SUMMARY_VALUE, scalar.of, scalar.n);
}

void board_add(struct board *b, const struct step_metrics *m)
{
    const char *key;
    json_t *all = b && !b->failed ? metrics_object(m) : NULL, *x;
    struct message event, summary = {.n = 0};
    if (!all)
        return;
    json_object_foreach(all, key, x)
    {
        if (json_is_number(x) && strcmp(key, "step") != 0)
            put_scalar(&summary, key, json_number_value(x));
    }
    json_decref(all);
    begin_event(&event, m->step);
    put_text(&event, EVENT_SUMMARY, summary.of, summary.n <= sizeof summary.of ? summary.n : 0);
    if (write_record(b->f, &event))
        return;
    b->failed = 1;
    tell("step %lld: cannot write %s: %s; TensorBoard sees no later step\n", (long long)m->step, b->path, strerror(errno));
}

void board_close(struct board *b)
{
    if (!b)
        return;
    if (b->f)
        fclose(b->f);
    free(b->path);
    free(b);
}
