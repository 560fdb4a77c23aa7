/* Writing whole exports into directories that may hold others' files. */
#include "checkpoint/place.h"

#include "base/directory.h"
#include "base/sys.h"
#include "checkpoint/base.h"
#include "checkpoint/files.h"
#include "checkpoint/texts.h"
#include "engine/source.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

enum { NAME = 256 };

/* Tells whether the file is the one by which readers recognise a model or an adapter. Such a file is moved last, since readers
 * expect all others beside it. */
static int says_what(const char *name)
{
    return strcmp(name, "config.json") == 0 || strcmp(name, ADAPTER_CONFIG) == 0;
}

static int ends(const char *name, const char *with)
{
    const size_t n = strlen(name), m = strlen(with);
    return n >= m && strcmp(name + n - m, with) == 0;
}

/* Tells whether an export may write a file of this name, or the name marks a run or a checkpoint. */
static int is_taken(const char *name)
{
    static const char *const others[] = {"config.yaml", "manifest.json", BASE_FILE, FACTS_FILE, CARD_FILE};
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        if (strcmp(name, others[i]) == 0)
            return 1;
    return says_what(name) || texts_has(name) || ends(name, ".safetensors") || ends(name, ".safetensors.index.json");
}

/* Refuses a name at which no directory can be made. */
static enum status refuse_name(const char *dir)
{
    struct stat sb;
    char target[16];
    if (sys_stat(dir, &sb) == 0)
        return S_ISDIR(sb.st_mode) ? OK : status_fail(ERR_INVALID, "--to: %s is a file: give a directory", dir);
    if (readlink(dir, target, sizeof target) >= 0)
        return status_fail(
            ERR_INVALID,
            "--to: %s is a symbolic link to what is not there: make the directory that it names, or give another one", dir);
    return OK;
}

enum status checkpoint_check_vacant(const char *dir)
{
    enum status st = OK;
    struct dirent *e;
    TRY(refuse_name(dir));
    DIR *d = sys_opendir(dir);
    if (!d)
        return sys_is_absent(errno) ? OK : status_fail(ERR_IO, "--to: cannot read %s: %s", dir, sys_strerror(errno));
    while (st == OK && (e = sys_readdir(d)) != NULL)
        if (is_taken(e->d_name))
            st = status_fail(
                ERR_INVALID,
                "--to: %s holds a model or a run already, or a part of one (%s): give another directory, or remove it", dir,
                e->d_name);
    closedir(d);
    return st;
}

/* Locks the directory; *fd is -1 if the file system has no locks. */
static enum status lock(const char *dir, int *fd)
{
    *fd = sys_open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC, 0);
    if (*fd < 0)
        return status_fail(ERR_IO, "--to: cannot open the directory %s: %s", dir, sys_strerror(errno));
    if (sys_flock(*fd, LOCK_EX | LOCK_NB) == 0)
        return OK;
    const int busy = errno == EWOULDBLOCK;
    sys_close(*fd);
    *fd = -1;
    return busy ? status_fail(ERR_INVALID, "--to: another export is writing to %s: give another directory", dir) : OK;
}

static void release(struct place *p)
{
    if (p->lock >= 0)
        sys_close(p->lock);
    p->lock = -1;
}

enum status place_begin(const char *dir, struct place *out)
{
    *out = (struct place){.dir = dir, .lock = -1};
    TRY(ckpt_path(out->partial, dir, "export.partial", ""));
    TRY(ckpt_make_dir(dir));
    TRY(lock(dir, &out->lock));
    ckpt_remove_dir(out->partial);
    enum status st = checkpoint_check_vacant(dir); /* another export that held the lock may just have ended */
    if (st == OK)
        st = ckpt_make_dir(out->partial);
    if (st != OK) {
        sys_rmdir(dir); /* succeeds only if the directory was new */
        release(out);
    }
    return st;
}

struct list {
    char (*names)[NAME]; /* array of n names; the last one is the file by which programs recognise an export */
    int n;
};

static enum status list_files(const char *dir, struct list *l)
{
    struct dirent *e;
    int room = 0;
    DIR *d = sys_opendir(dir);
    if (!d)
        return status_fail(ERR_IO, "cannot read %s: %s", dir, sys_strerror(errno));
    while (sys_readdir(d))
        room++;
    rewinddir(d);
    l->names = sys_calloc((size_t)room + 1, sizeof *l->names);
    for (int last = 0; l->names && last < 2; last++, rewinddir(d))
        while (l->n < room && (e = sys_readdir(d)) != NULL)
            if (strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0 && says_what(e->d_name) == last)
                snprintf(l->names[l->n++], NAME, "%s", e->d_name);
    closedir(d);
    return l->names ? OK : status_fail(ERR_NOMEM, "out of memory: the names of %d files", room);
}

static enum status move(const char *from, const char *to, const char *name)
{
    char source[CKPT_PATH], target[CKPT_PATH];
    int there;
    TRY(ckpt_path(source, from, name, ""));
    TRY(ckpt_path(target, to, name, ""));
    TRY(ckpt_look(target, &there));
    if (there)
        return status_fail(ERR_INVALID, "%s was not there before, and now it is: it is not written over", target);
    return ckpt_rename(source, target);
}

static enum status move_all(const char *from, const char *to)
{
    struct list l = {.n = 0};
    char path[CKPT_PATH];
    int moved = 0;
    enum status st = list_files(from, &l);
    while (st == OK && moved < l.n) {
        st = move(from, to, l.names[moved]);
        moved += st == OK;
    }
    if (st == OK)
        st = directory_sync(to);
    if (st == OK)
        st = directory_keep(to);
    for (int i = moved - 1; st != OK && i >= 0; i--)
        if (ckpt_path(path, to, l.names[i], "") == OK)
            sys_unlink(path);
    free(l.names);
    return st;
}

enum status place_end(struct place *p, enum status st)
{
    if (st == OK)
        st = move_all(p->partial, p->dir);
    ckpt_remove_dir(p->partial);
    if (st != OK)
        sys_rmdir(p->dir); /* succeeds only if the directory was new */
    release(p);
    return st;
}
