/* Hashing files, noticing that they change, and comparing lists of them. */
#include "data/fingerprint.h"

#include "base/clock.h"
#include "base/disk.h"
#include "base/num.h"
#include "base/progress.h"
#include "base/sys.h"
#include "data/file.h"

#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <string.h>
#include <sys/stat.h>
#include <xxhash.h>

/* ---- one file ---- */

/* Ages from which a file's last change shows any later one: times of files go in clock ticks of at most 10 ms if they have
 * fractions of a second, and of two seconds on FAT; clocks of other hosts may be a minute off. */
#define TICK_NS 100000000ll
#define WHOLE_SECONDS_NS 3000000000ll
#define OTHER_CLOCK_NS 60000000000ll
#define WRITTEN_BACK (8ll << 20) /* bytes written back at a time; a multiple of the bytes read at a time */

int fingerprint_is_settled(const struct timespec *ctime, int64_t now_ns, int shared)
{
    int64_t age = now_ns - ((int64_t)ctime->tv_sec * 1000000000 + ctime->tv_nsec);
    return age > (shared ? OTHER_CLOCK_NS : ctime->tv_nsec == 0 ? WHOLE_SECONDS_NS : TICK_NS);
}

/* Hashes also the time of the inode's last change: it shows a copy that keeps the former file's time of modification. Times that
 * changed without the bytes do no harm, since fingerprint_check then reads the file. The device's number is left out, as it
 * differs between hosts that mount the same file system. */
enum status fingerprint_stamp_of(int fd, const char *path, uint64_t *stamp, int *settled)
{
    struct stat s;
    *stamp = 0;
    if (sys_fstat(fd, &s) != 0)
        return status_fail(ERR_IO, "cannot read the state of %s: %s", path, strerror(errno));
    const uint64_t facts[] = {(uint64_t)s.st_ino,          (uint64_t)s.st_size,        (uint64_t)s.st_mtim.tv_sec,
                              (uint64_t)s.st_mtim.tv_nsec, (uint64_t)s.st_ctim.tv_sec, (uint64_t)s.st_ctim.tv_nsec};
    *stamp = XXH3_64bits(facts, sizeof facts);
    if (settled)
        *settled = disk_shows_changes(fd) && fingerprint_is_settled(&s.st_ctim, clock_wall_ns(), disk_is_shared(fd));
    return OK;
}

enum status fingerprint_stamp(const char *path, uint64_t *stamp, int64_t *bytes)
{
    int fd;
    TRY(file_open(path, &fd, bytes));
    enum status st = fingerprint_stamp_of(fd, path, stamp, NULL);
    sys_close(fd);
    return st;
}

/* Writes mapped pages back, except on a network file system, whose server sets a new time whenever a page arrives. */
void fingerprint_before_read(struct fingerprint *f, int fd, int64_t at, int64_t n)
{
    if (f->settled && !disk_is_shared(fd))
        f->settled = sys_write_back(fd, at, n) == 0;
}

/* Receiver of a whole file's bytes: a visitor, and a flag that ends the reading. */
struct reading {
    fingerprint_visitor *visit;
    void *user;
    const atomic_int *stop;
};

static enum status hash_open(int fd, const char *path, const struct reading *r, struct fingerprint *f)
{
    const int64_t bytes = f->bytes;
    uint8_t chunk[1 << 16];
    enum status st = OK;
    XXH3_state_t *hash = XXH3_createState();
    if (!hash || XXH3_64bits_reset(hash) != XXH_OK)
        st = status_fail(ERR_NOMEM, "out of memory while reading %s", path);
    for (int64_t at = 0; at < bytes && st == OK; at += (int64_t)sizeof chunk) {
        int64_t n = min_i64((int64_t)sizeof chunk, bytes - at);
        if (at % WRITTEN_BACK == 0)
            fingerprint_before_read(f, fd, at, min_i64(WRITTEN_BACK, bytes - at));
        st = file_read(fd, path, chunk, (size_t)n, at);
        if (st == OK)
            XXH3_64bits_update(hash, chunk, (size_t)n);
        progress_read(n);
        if (st == OK && r->visit)
            st = r->visit(r->user, chunk, n);
        if (st == OK && r->stop && atomic_load(r->stop) != 0)
            st = status_fail(ERR_STOPPED, "%s was not read to its end: a signal came", path);
    }
    if (st == OK)
        f->xxh3 = XXH3_64bits_digest(hash);
    XXH3_freeState(hash);
    return st;
}

static enum status take(const char *path, const struct reading *r, struct fingerprint *out)
{
    int fd;
    uint64_t after;
    enum status st;
    struct fingerprint f;
    TRY(file_open(path, &fd, &f.bytes));
    TRY_GOTO(fingerprint_stamp_of(fd, path, &f.stamp, &f.settled), done);
    TRY_GOTO(hash_open(fd, path, r, &f), done);
    TRY_GOTO(fingerprint_stamp_of(fd, path, &after, NULL), done);
    if (after != f.stamp)
        st = status_fail(ERR_CORRUPT, "%s changes while it is read: start once nothing writes to it any more", path);
done:
    sys_close(fd);
    if (st == OK)
        *out = f;
    return st;
}

enum status fingerprint_take(const char *path, fingerprint_visitor *visit, void *user, struct fingerprint *out)
{
    return take(path, &(struct reading){.visit = visit, .user = user}, out);
}

static enum status take_again(const char *path, const struct fingerprint *f, const struct rereading *r, struct fingerprint *now)
{
    progress_reading(f->bytes);
    if (r)
        r->begins(r->user, path, f->bytes);
    enum status st = take(path, &(struct reading){.stop = r ? r->stop : NULL}, now);
    if (st == OK && (now->bytes != f->bytes || now->xxh3 != f->xxh3))
        st = status_fail(ERR_CORRUPT, "%s has changed since this run began to read it (%lld bytes, before %lld)", path,
                         (long long)now->bytes, (long long)f->bytes);
    progress_reading(0);
    if (r)
        r->ended(r->user, path, st);
    return st;
}

enum status fingerprint_check(int fd, const char *path, struct fingerprint *f, const struct rereading *r)
{
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* guards the stamps of all fingerprints */
    struct fingerprint now = {.bytes = 0};
    uint64_t stamp;
    TRY(fingerprint_stamp_of(fd, path, &stamp, NULL));
    pthread_mutex_lock(&lock);
    int same = stamp == f->stamp;
    pthread_mutex_unlock(&lock);
    if (same)
        return OK;
    TRY(take_again(path, f, r, &now));
    pthread_mutex_lock(&lock);
    f->stamp = now.stamp;
    pthread_mutex_unlock(&lock);
    return OK;
}

/* ---- lists ---- */

void fingerprint_print(FILE *f, const char *kind, const struct fingerprint *x, const char *path)
{
    fprintf(f, "%s %016" PRIx64 " %lld ", kind, x->xxh3, (long long)x->bytes);
    fingerprint_print_path(f, path);
}

void fingerprint_print_path(FILE *f, const char *path)
{
    for (const char *p = path; *p; p++) {
        if (*p == '\n' || *p == '\\')
            putc('\\', f);
        putc(*p == '\n' ? 'n' : *p, f);
    }
    putc('\n', f);
}

void fingerprint_read_path(const char *text, char *path, size_t bytes)
{
    size_t n = 0;
    for (; *text && *text != '\n' && n + 1 < bytes; text++) {
        int escaped = *text == '\\' && text[1] && text[1] != '\n';
        text += escaped;
        path[n++] = (char)(escaped && *text == 'n' ? '\n' : *text);
    }
    path[n] = 0;
}

/* Finds the next line of that kind in a list, and moves *text behind the line. Lines of other kinds are skipped. */
static void next_file(const char **text, const char *kind, struct listed_file *out)
{
    size_t n = strlen(kind);
    out->there = 0;
    while (**text && !out->there) {
        const char *line = *text, *end = strchr(line, '\n');
        int used = 0;
        if (strncmp(line, kind, n) == 0 && line[n] == ' ' &&
            sscanf(line + n, " %" SCNx64 " %lld%n", &out->xxh3, &out->bytes, &used) == 2 && line[n + (size_t)used] == ' ') {
            out->there = 1;
            fingerprint_read_path(line + n + used + 1, out->path, sizeof out->path);
        }
        *text = end ? end + 1 : line + strlen(line);
    }
}

static uint64_t mixed(const struct listed_file *f)
{
    const uint64_t facts[] = {f->xxh3, (uint64_t)f->bytes};
    return XXH3_64bits(facts, sizeof facts);
}

int fingerprint_lists_differ(const char *a, const char *b, const char *kind, struct fingerprint_difference *out)
{
    const char *text[2] = {a, b};
    uint64_t sum[2] = {0, 0}; /* sums of hashes of all files, which do not depend on the order */
    struct listed_file f[2];
    *out = (struct fingerprint_difference){.unequal = 0};
    for (;;) {
        for (int i = 0; i < 2; i++) {
            next_file(&text[i], kind, &f[i]);
            out->files[i] += f[i].there;
            sum[i] += f[i].there ? mixed(&f[i]) : 0;
        }
        if (!f[0].there && !f[1].there)
            break;
        if (f[0].there && f[1].there && f[0].xxh3 == f[1].xxh3 && f[0].bytes == f[1].bytes)
            continue;
        out->resized |= !f[0].there || !f[1].there || f[0].bytes != f[1].bytes;
        if (out->unequal++ == 0)
            memcpy(out->first, f, sizeof f);
    }
    out->reordered = out->unequal > 0 && out->files[0] == out->files[1] && sum[0] == sum[1];
    return out->unequal > 0;
}

void fingerprint_describe(const struct fingerprint_difference *d, char *text, size_t bytes)
{
    const struct listed_file *now = &d->first[0], *was = &d->first[1];
    int n;
    if (d->reordered)
        n = snprintf(text, bytes, "the same files come in another order, %.300s where %.300s was", now->path, was->path);
    else if (!now->there || !was->there)
        n = snprintf(text, bytes, "there are %lld files and there were %lld, %.300s is %s", (long long)d->files[0],
                     (long long)d->files[1], now->there ? now->path : was->path, now->there ? "new" : "missing");
    else if (strcmp(now->path, was->path) != 0)
        n = snprintf(text, bytes, "%.300s (%lld bytes) is where %.300s (%lld bytes) was", now->path, now->bytes, was->path,
                     was->bytes);
    else if (now->bytes != was->bytes)
        n = snprintf(text, bytes, "%.300s has %lld bytes and had %lld", now->path, now->bytes, was->bytes);
    else
        n = snprintf(text, bytes, "%.300s has other content, of the same length", now->path);
    if (d->unequal > 1 && !d->reordered && n < (int)bytes)
        snprintf(text + n, bytes - (size_t)n, "; %lld more differ", (long long)d->unequal - 1);
}
