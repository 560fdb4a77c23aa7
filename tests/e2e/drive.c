/* A drive whose power fails: files and directories, with what was synced of each and the changes since. */
#include "drive.h"

#include "base/num.h"
#include "base/rng.h"
#include "harness.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { SECTOR = 512, THREADS = 8 };

/* A change since the last sync. Files: bytes at an offset, or a size (data NULL). Directories: `name` loses its entry, `to` gets
 * one; "": none. */
struct change {
    const char *data;
    int64_t at, bytes;
    struct node *child;
    char name[RECORDED_NAME], to[RECORDED_NAME];
};

struct slot {
    char name[RECORDED_NAME];
    struct node *child;
};

struct node {
    uint64_t inode;
    int is_dir;
    char *bytes;
    int64_t size;
    struct slot *slots;
    int n_slots;
    struct change *changes;
    int n_changes;
    uint32_t syncing[THREADS]; /* threads whose fsync has begun, 0: none, and the changes before it */
    int before[THREADS];
};

struct drive {
    struct node **nodes; /* [n_nodes]; the first is the directory itself */
    int n_nodes;
};

static void *more(void *p, size_t n, size_t size)
{
    p = (n & (n - 1)) == 0 ? realloc(p, (n ? 2 * n : 1) * size) : p; /* grows at powers of two */
    assert_non_null(p);
    return p;
}

/* ---- recordings ---- */

void recording_read(const char *path, struct recording *out)
{
    size_t size, at = 0;
    *out = (struct recording){.bytes = e2e_read(path, &size)};
    while (at < size) {
        out->event = more(out->event, (size_t)out->n, sizeof *out->event);
        out->data = more(out->data, (size_t)out->n, sizeof *out->data);
        struct recorded_event *e = &out->event[out->n];
        assert_true(size - at >= sizeof *e);
        memcpy(e, out->bytes + at, sizeof *e);
        at += sizeof *e;
        out->data[out->n++] = out->bytes + at;
        at += e->kind == RECORDED_WRITE ? (size_t)e->bytes : 0;
        assert_true(at <= size);
    }
}

void recording_free(struct recording *r)
{
    free(r->bytes);
    free(r->event);
    free(r->data);
}

/* ---- nodes ---- */

static struct node *node_new(struct drive *d, uint64_t inode, int is_dir)
{
    struct node *n = calloc(1, sizeof *n);
    assert_non_null(n);
    n->inode = inode;
    n->is_dir = is_dir;
    d->nodes = more(d->nodes, (size_t)d->n_nodes, sizeof(struct node *));
    d->nodes[d->n_nodes++] = n;
    return n;
}

/* Finds the newest file with an inode, whose number a removed one may have had. */
static struct node *node_find(const struct drive *d, uint64_t inode)
{
    for (int i = d->n_nodes - 1; i >= 0; i--)
        if (d->nodes[i]->inode == inode)
            return d->nodes[i];
    return NULL;
}

static void slots_change(struct slot **slots, int *n, const struct change *c)
{
    for (int i = 0; i < *n; i++)
        if (strcmp((*slots)[i].name, c->name) == 0 || strcmp((*slots)[i].name, c->to) == 0)
            (*slots)[i--] = (*slots)[--*n];
    if (!c->to[0])
        return;
    *slots = realloc(*slots, (size_t)(*n + 1) * sizeof **slots);
    assert_non_null(*slots);
    struct slot *s = &(*slots)[(*n)++];
    memcpy(s->name, c->to, RECORDED_NAME);
    s->child = c->child;
}

/* Applies a write, of which `kept` says which sectors arrive; NULL: all. */
static void bytes_change(char **bytes, int64_t *size, const struct change *c, const uint8_t *kept)
{
    const int64_t end = c->data ? c->at + c->bytes : c->bytes;
    if (end > *size || !c->data) {
        *bytes = realloc(*bytes, (size_t)end + 1);
        assert_non_null(*bytes);
        if (end > *size)
            memset(*bytes + *size, 0, (size_t)(end - *size));
        *size = end;
    }
    for (int64_t i = 0, n; c->data && i < c->bytes; i += n) {
        n = min_i64(SECTOR - (c->at + i) % SECTOR, c->bytes - i);
        if (!kept || kept[i / SECTOR])
            memcpy(*bytes + c->at + i, c->data + i, (size_t)n);
    }
}

static struct node *look_up(const struct node *dir, const char *name)
{
    struct node *found = NULL;
    for (int i = 0; i < dir->n_slots; i++)
        if (strcmp(dir->slots[i].name, name) == 0)
            found = dir->slots[i].child;
    for (int i = 0; i < dir->n_changes; i++) {
        if (strcmp(dir->changes[i].name, name) == 0)
            found = NULL;
        if (strcmp(dir->changes[i].to, name) == 0)
            found = dir->changes[i].child;
    }
    return found;
}

static void take(struct drive *d, struct node *dir, const char *path)
{
    DIR *list = opendir(path);
    assert_non_null(list);
    for (struct dirent *e; (e = readdir(list));) {
        char at[4096];
        struct stat s;
        struct change c = {0};
        if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0)
            continue;
        snprintf(at, sizeof at, "%s/%s", path, e->d_name);
        recorded_name(c.to, e->d_name);
        assert_int_equal(lstat(at, &s), 0);
        c.child = node_new(d, (uint64_t)s.st_ino, S_ISDIR(s.st_mode));
        slots_change(&dir->slots, &dir->n_slots, &c);
        if (c.child->is_dir) {
            take(d, c.child, at);
        } else {
            size_t n;
            c.child->bytes = e2e_read(at, &n);
            c.child->size = (int64_t)n;
        }
    }
    closedir(list);
}

struct drive *drive_take(const char *path)
{
    struct drive *d = calloc(1, sizeof *d);
    struct stat s;
    assert_non_null(d);
    assert_int_equal(stat(path, &s), 0);
    take(d, node_new(d, (uint64_t)s.st_ino, 1), path);
    return d;
}

void drive_free(struct drive *d)
{
    for (int i = 0; i < d->n_nodes; i++) {
        free(d->nodes[i]->bytes);
        free(d->nodes[i]->slots);
        free(d->nodes[i]->changes);
        free(d->nodes[i]);
    }
    free(d->nodes);
    free(d);
}

/* ---- events ---- */

static void add_change(struct node *n, const struct change *c)
{
    if (!n)
        return;
    n->changes = realloc(n->changes, (size_t)(n->n_changes + 1) * sizeof *n->changes);
    assert_non_null(n->changes);
    n->changes[n->n_changes++] = *c;
}

static void apply_first(struct node *n, int count)
{
    if (count == 0)
        return;
    for (int i = 0; i < count; i++)
        if (n->is_dir)
            slots_change(&n->slots, &n->n_slots, &n->changes[i]);
        else
            bytes_change(&n->bytes, &n->size, &n->changes[i], NULL);
    n->n_changes -= count;
    memmove(n->changes, n->changes + count, (size_t)n->n_changes * sizeof *n->changes);
    for (int t = 0; t < THREADS; t++)
        n->before[t] = n->before[t] > count ? n->before[t] - count : 0;
}

/* Makes safe what came before the sync's beginning, at its end. */
static void sync_node(struct node *n, uint32_t thread, int ends)
{
    int t = 0;
    while (t < THREADS && n->syncing[t] != (ends ? thread : 0))
        t++;
    if (t == THREADS)
        return;
    if (ends)
        apply_first(n, n->before[t]);
    n->syncing[t] = ends ? 0 : thread;
    n->before[t] = ends ? 0 : n->n_changes;
}

static void rename_node(struct drive *d, const struct recorded_event *e)
{
    struct node *from = node_find(d, e->dir), *to = node_find(d, e->to_dir);
    struct change c = {.child = from ? look_up(from, e->name) : NULL};
    if (!c.child)
        return;
    memcpy(c.name, e->name, sizeof c.name);
    if (from == to)
        memcpy(c.to, e->to, sizeof c.to);
    add_change(from, &c);
    if (from == to)
        return;
    c.name[0] = 0;
    memcpy(c.to, e->to, sizeof c.to);
    add_change(to, &c);
}

void drive_apply(struct drive *d, const struct recorded_event *e, const char *data)
{
    struct node *n = e->inode ? node_find(d, e->inode) : NULL, *dir = e->dir ? node_find(d, e->dir) : NULL;
    struct change c = {.at = e->at, .bytes = e->bytes};
    switch ((enum recorded)e->kind) {
    case RECORDED_FILE:
    case RECORDED_MKDIR:
        if (dir)
            c.child = node_new(d, e->inode, e->kind == RECORDED_MKDIR);
        memcpy(c.to, e->name, sizeof c.to);
        add_change(dir, &c);
        return;
    case RECORDED_WRITE:
        c.data = data;
        add_change(n, &c);
        return;
    case RECORDED_SIZE:
        add_change(n, &c);
        return;
    case RECORDED_RENAME:
        rename_node(d, e);
        return;
    case RECORDED_UNLINK:
        memcpy(c.name, e->name, sizeof c.name);
        add_change(dir, &c);
        return;
    case RECORDED_SYNC:
    case RECORDED_SYNCED:
        if (n)
            sync_node(n, e->thread, e->kind == RECORDED_SYNCED);
        return;
    case RECORDED_SAVED:
        return;
    }
}

int drive_is_directory(const struct drive *d, const struct recorded_event *e)
{
    const struct node *n = node_find(d, e->inode);
    return n && n->is_dir;
}

/* ---- after the power has failed ---- */

struct outcome {
    enum fate fate;
    uint64_t seed, draws;
};

static int draw(struct outcome *o, int n)
{
    return (int)rng_below(o->seed, 0xd41fe, o->draws++, (uint64_t)n);
}

static int is_kept(struct outcome *o)
{
    return o->fate == FATE_KEPT || (o->fate == FATE_DRAWN && draw(o, 2));
}

/* Draws the sectors of a write that arrive: all, those before one, or any. Returns NULL for all. */
static uint8_t *draw_sectors(struct outcome *o, int64_t bytes)
{
    const int n = (int)ceil_div(bytes, SECTOR) + 1, kind = draw(o, 3), cut = draw(o, n);
    if (o->fate == FATE_KEPT || kind == 0)
        return NULL;
    uint8_t *kept = malloc((size_t)n);
    assert_non_null(kept);
    for (int i = 0; i < n; i++)
        kept[i] = kind == 1 ? i < cut : draw(o, 2);
    return kept;
}

static void write_file(const struct node *f, const char *path, struct outcome *o)
{
    int64_t size = f->size;
    char *bytes = malloc((size_t)size + 1);
    assert_non_null(bytes);
    if (size)
        memcpy(bytes, f->bytes, (size_t)size);
    for (int i = 0; i < f->n_changes; i++) {
        if (!is_kept(o))
            continue;
        uint8_t *kept = f->changes[i].data ? draw_sectors(o, f->changes[i].bytes) : NULL;
        bytes_change(&bytes, &size, &f->changes[i], kept);
        free(kept);
    }
    const int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    assert_true(fd >= 0);
    assert_true(size == 0 || write(fd, bytes, (size_t)size) == (ssize_t)size);
    close(fd);
    free(bytes);
}

static void write_node(const struct node *n, const char *path, struct outcome *o)
{
    char at[4096];
    if (!n->is_dir) {
        write_file(n, path, o);
        return;
    }
    assert_int_equal(mkdir(path, 0777), 0);
    struct slot *slots = malloc(((size_t)n->n_slots + 1) * sizeof *slots);
    int n_slots = n->n_slots;
    assert_non_null(slots);
    if (n_slots)
        memcpy(slots, n->slots, (size_t)n_slots * sizeof *slots);
    for (int i = 0; i < n->n_changes; i++)
        if (is_kept(o))
            slots_change(&slots, &n_slots, &n->changes[i]);
    for (int i = 0; i < n_slots; i++) {
        snprintf(at, sizeof at, "%s/%s", path, slots[i].name);
        write_node(slots[i].child, at, o);
    }
    free(slots);
}

void drive_write(const struct drive *d, const char *to, enum fate fate, uint64_t seed)
{
    struct outcome o = {.fate = fate, .seed = seed};
    e2e_remove(to);
    write_node(d->nodes[0], to, &o);
}
