#include "doctor/bundle.h"

#include "base/clock.h"
#include "base/num.h"
#include "base/sys.h"
#include "comm/launch.h"
#include "plan/report/json.h"
#include "plan/report/text.h"
#include "settings/read.h"

#include <ctype.h>
#include <errno.h>
#include <gnu/libc-version.h>
#include <pwd.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <unistd.h>

#define FOLDER "ltrain-doctor/"

/* ---- names ---- */

struct names {
    char home[4096], resolved[4096], host[256]; /* "": not known */
    char user[4][128];
};

static void find_names(struct names *n)
{
    static const char *const variables[] = {"USER", "LOGNAME", "SUDO_USER"};
    const struct passwd *p = getpwuid(getuid());
    const char *home = getenv("HOME");
    *n = (struct names){.home = ""};
    home = home && home[0] ? home : p ? p->pw_dir : "";
    if (home[0] == '/' && home[1])
        snprintf(n->home, sizeof n->home, "%s", home);
    char *real = n->home[0] ? sys_realpath(n->home) : NULL;
    snprintf(n->resolved, sizeof n->resolved, "%s", real ? real : "");
    free(real);
    if (gethostname(n->host, sizeof n->host - 1) != 0 || strcmp(n->host, "localhost") == 0)
        n->host[0] = 0;
    for (int i = 0; i < 3; i++)
        snprintf(n->user[i], sizeof n->user[i], "%s", getenv(variables[i]) ? getenv(variables[i]) : "");
    snprintf(n->user[3], sizeof n->user[3], "%s", p ? p->pw_name : "");
    for (int i = 0; i < 4; i++)
        if (strcmp(n->user[i], "root") == 0)
            n->user[i][0] = 0; /* no person's name */
}

static int is_of_word(char c)
{
    return isalnum((unsigned char)c) || c == '_';
}

/* Tells whether `word`, which may be a path, stands at `at` as a whole word. */
static int stands_at(const char *text, const char *at, const char *word)
{
    const size_t n = strlen(word);
    return n > 0 && strncmp(at, word, n) == 0 && !is_of_word(at[n]) && (at == text || !is_of_word(at[-1]) || word[0] == '/');
}

/* Returns the replacement of a private name that begins at `at`, and that name's length; NULL: no name begins there. */
static const char *replaced_by(const struct names *n, const struct comm *c, const char *text, const char *at, size_t *length)
{
    static const char *const homes[] = {"/home/", "/Users/"};
    const char *const path[] = {n->resolved, n->home};
    for (int i = 0; i < 2; i++)
        if (stands_at(text, at, path[i])) {
            *length = strlen(path[i]);
            return "~";
        }
    for (int i = 0; i < 2; i++)
        if (strncmp(at, homes[i], strlen(homes[i])) == 0) {
            *length = strlen(homes[i]) + strcspn(at + strlen(homes[i]), "/ \t\n\"':,");
            return "/home/USER";
        }
    for (int i = 0; i < 4; i++)
        if (stands_at(text, at, n->user[i])) {
            *length = strlen(n->user[i]);
            return "USER";
        }
    if (stands_at(text, at, n->host)) {
        *length = strlen(n->host);
        return "HOST";
    }
    for (int r = 0; c && r < comm_size(c); r++)
        if (stands_at(text, at, comm_host(c, r))) {
            *length = strlen(comm_host(c, r));
            return "HOST";
        }
    return NULL;
}

/* Copies a text with users' names, home directories and the names of hosts (those of the ranks of c, which may be NULL) replaced by
 * ~, USER and HOST. To be freed; NULL: no memory. */
static char *without_names(const char *text, const struct comm *c)
{
    struct names n;
    char *out = NULL;
    size_t size, length;
    FILE *f = open_memstream(&out, &size);
    find_names(&n);
    for (const char *at = text; f && *at;) {
        const char *instead = replaced_by(&n, c, text, at, &length);
        if (instead)
            fputs(instead, f);
        else
            fputc(*at, f);
        at += instead ? length : 1;
    }
    return f && fclose(f) == 0 ? out : NULL;
}

/* ---- tar ---- */

/* Header of a file, by POSIX (ustar): texts, and numbers as octal digits. */
struct header {
    char name[100], mode[8], uid[8], gid[8], size[12], mtime[12], checksum[8], type, link[100], magic[6], version[2];
    char user[32], group[32], major[8], minor[8], prefix[155], rest[12];
};
_Static_assert(sizeof(struct header) == 512, "a block");

static int write_file(FILE *tar, const char *name, const char *text)
{
    static const char zeros[512];
    const size_t n = strlen(text);
    struct header h = {.mode = "0000644",
                       .uid = "0000000",
                       .gid = "0000000",
                       .checksum = "       ",
                       .type = '0',
                       .magic = "ustar",
                       .version = "00"};
    unsigned sum = 0;
    memset(h.version, '0', 2);
    snprintf(h.name, sizeof h.name, FOLDER "%s", name);
    snprintf(h.size, sizeof h.size, "%011llo", (unsigned long long)n & 077777777777);
    snprintf(h.mtime, sizeof h.mtime, "%011llo", (unsigned long long)(clock_wall_ns() / 1000000000) & 077777777777);
    memset(h.checksum, ' ', sizeof h.checksum);
    for (size_t i = 0; i < sizeof h; i++)
        sum += ((const unsigned char *)&h)[i];
    snprintf(h.checksum, sizeof h.checksum, "%06o", sum);
    return fwrite(&h, sizeof h, 1, tar) == 1 && fwrite(text, 1, n, tar) == n &&
           fwrite(zeros, 1, (512 - n % 512) % 512, tar) == (512 - n % 512) % 512;
}

/* ---- contents of the files ---- */

typedef enum status writer(FILE *f, const void *x);

static enum status write_findings(FILE *f, const void *x)
{
    findings_print(x, f);
    return OK;
}

static enum status write_findings_json(FILE *f, const void *x)
{
    return findings_print_json(x, f);
}

static enum status write_versions(FILE *f, const void *x)
{
    struct utsname u;
    char mpi[256];
    wire_found(mpi, sizeof mpi);
    fputs(x, f);
    if (uname(&u) == 0)
        fprintf(f, "kernel %s %s %s %s\n", u.sysname, u.release, u.version, u.machine);
    fprintf(f, "glibc %s\nmpi %s\n", gnu_get_libc_version(), mpi);
    return OK;
}

/* Writes the settings except those that contain data or their paths. */
static enum status write_settings(FILE *f, const void *x)
{
    struct settings s = *((const struct needs *)x)->s;
    s.data.n = s.eval_data.n = s.data_exclude.n = s.stop_at.n = s.template_var.n = 0;
    s.prompt = s.prompt_file = s.system = s.text_column = s.token_cache = s.write_samples = NULL;
    return settings_write_yaml(&s, f);
}

static enum status write_plan(FILE *f, const void *x)
{
    const struct needs *n = x;
    return plan_print(n->plan, n->model, &n->s->plan, f);
}

static enum status write_plan_json(FILE *f, const void *x)
{
    const struct needs *n = x;
    return plan_write_json(n->plan, n->model, &n->s->plan, NULL, NULL, f);
}

/* Adds a file with the text that `write` writes about x, with private names replaced. */
static enum status add(FILE *tar, const struct comm *c, const char *name, writer *write, const void *x)
{
    char *text = NULL, *clean = NULL;
    size_t size;
    FILE *f = open_memstream(&text, &size);
    enum status st = f ? write(f, x) : status_fail(ERR_NOMEM, "doctor: out of memory for the bundle");
    if (f && fclose(f) != 0 && st == OK)
        st = status_fail(ERR_NOMEM, "doctor: out of memory for the bundle");
    clean = st == OK ? without_names(text, c) : NULL;
    if (st == OK && !clean)
        st = status_fail(ERR_NOMEM, "doctor: out of memory for the bundle");
    if (st == OK && !write_file(tar, name, clean))
        st = status_fail(ERR_IO, "%s", strerror(errno));
    free(text);
    free(clean);
    return st;
}

static enum status add_all(FILE *tar, const struct doctor *d, const struct findings *f, const struct needs *needs)
{
    static const char end[1024];
    const struct comm *c = d->comm;
    TRY(add(tar, c, "doctor.txt", write_findings, f));
    TRY(add(tar, c, "doctor.json", write_findings_json, f));
    TRY(add(tar, c, "versions.txt", write_versions, d->version));
    if (needs) {
        TRY(add(tar, c, "settings.yaml", write_settings, needs));
        TRY(add(tar, c, "plan.txt", write_plan, needs));
        TRY(add(tar, c, "plan.json", write_plan_json, needs));
    }
    return fwrite(end, sizeof end, 1, tar) == 1 ? OK : status_fail(ERR_IO, "%s", strerror(errno));
}

enum status bundle_write(const struct doctor *d, const struct findings *f, const struct needs *needs)
{
    const char *path = d->bundle;
    char why[768];
    FILE *tar = sys_write_text(path);
    if (!tar)
        return status_fail(ERR_IO, "--bundle: cannot write %s: %s", path, sys_strerror(errno));
    enum status st = add_all(tar, d, f, needs);
    if (fclose(tar) != 0 && st == OK)
        st = status_fail(ERR_IO, "%s", strerror(errno));
    if (st == OK)
        return OK;
    snprintf(why, sizeof why, "%.700s", status_message());
    sys_unlink(path);
    return status_fail(st, "--bundle: cannot write %s: %s", path, why);
}
