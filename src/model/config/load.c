/* Loading config.json as JSON, in which older releases of transformers wrote a bare Infinity. */
#include "model/config/config.h"

#include "base/sys.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MAX_CONFIG_BYTES = 1 << 24 };

static enum status read_text(const char *path, char **text, size_t *bytes)
{
    struct stat s;
    enum status st = OK;
    int fd = sys_open_file(path, O_RDONLY, 0);
    if (fd < 0)
        return sys_cannot_open(path);
    int failed = sys_fstat(fd, &s) == 0 ? 0 : errno;
    size_t done = 0, n = !failed && s.st_size > 0 && s.st_size <= MAX_CONFIG_BYTES ? (size_t)s.st_size : 0;
    char *buf = sys_malloc(n + 1);
    if (failed)
        st = status_fail(ERR_IO, "cannot read %s: %s", path, strerror(failed));
    else if (!buf)
        st = status_fail(ERR_NOMEM, "out of memory: %zu bytes for %s", n, path);
    else if (n == 0)
        st = status_fail(ERR_INVALID, "%s is empty or larger than %d bytes", path, MAX_CONFIG_BYTES);
    while (st == OK && done < n) {
        ssize_t got = sys_pread(fd, buf + done, n - done, (off_t)done);
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            st = status_fail(ERR_IO, "cannot read %s: %s", path, got < 0 ? strerror(errno) : "it became shorter");
        else
            done += (size_t)got;
    }
    sys_close(fd);
    if (st != OK) {
        free(buf);
        return st;
    }
    *text = buf;
    *bytes = n;
    return OK;
}

static const char bare[] = "Infinity", spelt[] = "{\"__float__\": \"Infinity\"}";
enum { BARE = sizeof bare - 1, SPELT = sizeof spelt - 1 };

/* Returns the next bare Infinity from `at` on; NULL: there is none. */
static const char *find_infinity(const char *at, const char *end)
{
    int quoted = 0;
    for (; at < end; at++) {
        if (quoted && *at == '\\')
            at++;
        else if (*at == '"')
            quoted = !quoted;
        else if (!quoted && end - at >= BARE && memcmp(at, bare, BARE) == 0 && at[-1] != '-')
            return at;
    }
    return NULL;
}

/* Spells bare Infinities as transformers 5 does, as JSON has none. Returns 0 if memory runs out. */
static int spell_infinities(char **text, size_t *bytes)
{
    const char *end = *text + *bytes, *next;
    size_t n = 0;
    for (const char *at = *text + 1; at < end && (at = find_infinity(at, end)) != NULL; at += BARE)
        n++;
    if (n == 0)
        return 1;
    char *out = sys_malloc(*bytes + n * (SPELT - BARE)), *to = out;
    if (!out)
        return 0;
    const char *from = *text;
    for (const char *at = from + 1; (next = find_infinity(at, end)) != NULL; at = from) {
        memcpy(to, from, (size_t)(next - from));
        to += next - from;
        memcpy(to, spelt, SPELT);
        to += SPELT;
        from = next + BARE;
    }
    memcpy(to, from, (size_t)(end - from));
    free(*text);
    *text = out;
    *bytes += n * (SPELT - BARE);
    return 1;
}

enum status config_load(const char *dir, char path[CONFIG_PATH], json_t **root)
{
    char *text = NULL;
    size_t bytes = 0;
    json_error_t error;
    if (snprintf(path, CONFIG_PATH, "%s/config.json", dir) >= CONFIG_PATH)
        return status_fail(ERR_INVALID, "%.64s...: the path is too long", dir);
    TRY(read_text(path, &text, &bytes));
    if (!spell_infinities(&text, &bytes)) {
        free(text);
        return status_fail(ERR_NOMEM, "out of memory for %s", path);
    }
    *root = json_loadb(text, bytes, JSON_REJECT_DUPLICATES, &error);
    free(text);
    if (!*root)
        return status_fail(ERR_INVALID, "%s: line %d: %s", path, error.line, error.text);
    if (json_is_object(*root))
        return OK;
    json_decref(*root);
    return status_fail(ERR_INVALID, "%s must hold an object", path);
}
