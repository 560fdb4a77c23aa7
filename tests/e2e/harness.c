/* Starts programs, catches their output, and handles files. */
#include "harness.h"

#include "base/clock.h"
#include "base/num.h"

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <glob.h>
#include <jansson.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <linux/capability.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum { CANNOT = 99, MAX_ARGUMENTS = 64, CORPUS_BYTES = 20000 };

static char folder[64], outside[4096], *printed[2];
static const char *const stream_names[2] = {".stdout", ".stderr"};
static char command[4096]; /* last program that was started, for messages */
static double started;

/* ---- files ---- */

char *e2e_read(const char *path, size_t *bytes)
{
    FILE *f = fopen(path, "re");
    if (!f)
        fail_msg("cannot open %s: %s (after: ltrain %s)", path, strerror(errno), command);
    size_t n = 0, room = 1 << 16;
    char *text = malloc(room + 1);
    for (size_t got; (got = fread(text + n, 1, room - n, f)) > 0;)
        if ((n += got) == room)
            text = realloc(text, (room *= 2) + 1);
    fclose(f);
    text[n] = 0;
    if (bytes)
        *bytes = n;
    return text;
}

void e2e_write(const char *path, const char *format, ...)
{
    va_list args;
    FILE *f = fopen(path, "we");
    assert_non_null(f);
    va_start(args, format);
    vfprintf(f, format, args);
    va_end(args);
    assert_int_equal(fclose(f), 0);
}

int e2e_exists(const char *format, ...)
{
    char path[4096];
    va_list args;
    va_start(args, format);
    vsnprintf(path, sizeof path, format, args);
    va_end(args);
    return access(path, F_OK) == 0;
}

static int remove_one(const char *path, const struct stat *s, int kind, struct FTW *where)
{
    (void)s, (void)kind, (void)where;
    return remove(path);
}

void e2e_remove(const char *path)
{
    nftw(path, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

void e2e_copy(const char *from, const char *to)
{
    char copy[256];
    e2e_remove(to);
    snprintf(copy, sizeof copy, "cp -a %s %s", from, to);
    assert_int_equal(system(copy), 0);
}

void e2e_same_file(const char *a, const char *b)
{
    size_t na, nb;
    char *x = e2e_read(a, &na), *y = e2e_read(b, &nb);
    if (na != nb || memcmp(x, y, na) != 0)
        fail_msg("%s and %s differ (after: ltrain %s)", a, b, command);
    free(x);
    free(y);
}

/* Writes tokens that the models with experts know. */
static void write_ids(void)
{
    enum { MOST = 32, COUNT = 4096 };
    uint16_t ids[COUNT];
    uint32_t x = 5;
    FILE *f = fopen("ids.bin", "wb");
    assert_non_null(f);
    for (int i = 0; i < COUNT; i++) {
        x = x * 1664525u + 1013904223u;
        ids[i] = (uint16_t)(i % 3 ? ids[i - 1] * 5 % MOST : (x >> 16) % MOST);
    }
    assert_int_equal(fwrite(ids, sizeof *ids, COUNT, f), COUNT);
    fclose(f);
}

void e2e_golden_model(const char *name, const char *to)
{
    char from[4096];
    if (!getenv("LTRAIN_SOURCE_ROOT"))
        skip();
    snprintf(from, sizeof from, "%s/tests/golden/%s", getenv("LTRAIN_SOURCE_ROOT"), name);
    e2e_copy(from, to);
    write_ids();
}

void e2e_experts_model(const char *name, const char *to)
{
    char path[64];
    snprintf(path, sizeof path, "moe/%s", name);
    e2e_golden_model(path, to);
}

int e2e_count(const char *pattern)
{
    glob_t g = {0};
    int n = glob(pattern, 0, NULL, &g) == 0 ? (int)g.gl_pathc : 0;
    globfree(&g);
    return n;
}

/* Writes words of a small vocabulary, chosen by a linear congruential generator: the same bytes on every machine. */
static void write_corpus(const char *path, int bytes)
{
    uint32_t x = 12345;
    FILE *f = fopen(path, "we");
    assert_non_null(f);
    for (int n = 0; n < bytes; n++) {
        x = x * 1664525u + 1013904223u;
        putc(x >> 16 & 3 ? "etaoinshrdlu"[(x >> 20) % 12] : (x >> 24) % 20 ? ' ' : '\n', f);
    }
    assert_int_equal(fclose(f), 0);
}

int e2e_setup(void **state)
{
    const char *base = getenv("TMPDIR");
    (void)state;
    if (!getenv("LTRAIN")) {
        fprintf(stderr, "the environment variable LTRAIN must name the program\n");
        return -1;
    }
    setbuf(stdout, NULL); /* children must not print inherited buffers a second time */
    if (!getcwd(outside, sizeof outside))
        return -1;
    snprintf(folder, sizeof folder, "%.40s/ltrain-e2e-XXXXXX", base ? base : "/tmp");
    if (!mkdtemp(folder) || chdir(folder) != 0)
        return -1;
    write_corpus("corpus.txt", CORPUS_BYTES);
    return 0;
}

int e2e_teardown(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++) {
        free(printed[i]);
        printed[i] = NULL;
    }
    if (chdir(outside) != 0)
        return -1;
    if (!getenv("LTRAIN_KEEP")) /* LTRAIN_KEEP keeps the files of a failed test for inspection */
        e2e_remove(folder);
    return 0;
}

/* ---- programs ---- */

static void become_ltrain(const struct launch *how, const int streams[2], char **argv)
{
    for (int i = 0; i < 2; i++)
        if (dup2(streams[i], i + 1) < 0)
            _exit(CANNOT);
    setenv("OMP_WAIT_POLICY", "passive", 1);
    unsetenv("LTRAIN_FAULT");
    if (how && how->fault)
        setenv("LTRAIN_FAULT", how->fault, 1);
    signal(SIGHUP, SIG_DFL); /* the tests may have been started by nohup */
    if (how && how->prepare && how->prepare() != 0)
        _exit(CANNOT);
    execv(argv[0], argv);
    _exit(CANNOT);
}

pid_t e2e_start(const struct launch *how, const char *arguments)
{
    static char words[4096];
    char *argv[MAX_ARGUMENTS] = {getenv("LTRAIN")}, *rest = words;
    int n = 1, streams[2];
    snprintf(command, sizeof command, "%s", arguments);
    snprintf(words, sizeof words, "%s", arguments);
    for (char *word; (word = strsep(&rest, " ")) && n < MAX_ARGUMENTS - 1;)
        if (*word)
            argv[n++] = word;
    for (int i = 0; i < 2; i++) {
        streams[i] = open(stream_names[i], O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
        assert_true(streams[i] >= 0);
    }
    started = clock_seconds();
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0)
        become_ltrain(how, streams, argv);
    close(streams[0]);
    close(streams[1]);
    return pid;
}

struct result e2e_wait(pid_t pid)
{
    struct result r = {0};
    struct rusage usage;
    int status;
    while (wait4(pid, &status, 0, &usage) < 0)
        assert_int_equal(errno, EINTR);
    r.seconds = clock_seconds() - started;
    r.status = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
    r.peak_bytes = (int64_t)usage.ru_maxrss * 1024;
    if (r.status == CANNOT) {
        print_message("skipped: this machine cannot prepare what the test needs\n");
        skip();
    }
    for (int i = 0; i < 2; i++) {
        free(printed[i]);
        printed[i] = e2e_read(stream_names[i], NULL);
    }
    r.out = printed[0];
    r.err = printed[1];
    return r;
}

static struct result run(const struct launch *how, const char *format, va_list args)
{
    char arguments[4096];
    vsnprintf(arguments, sizeof arguments, format, args);
    return e2e_wait(e2e_start(how, arguments));
}

struct result e2e_run(const struct launch *how, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    struct result r = run(how, format, args);
    va_end(args);
    return r;
}

struct result e2e_succeeds(const struct launch *how, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    struct result r = run(how, format, args);
    va_end(args);
    if (r.status != 0 || r.err[0])
        fail_msg("ltrain %s\nexits with %d: %s", command, r.status, r.err);
    return r;
}

void e2e_contains(const char *text, const char *word)
{
    if (!strstr(text, word))
        fail_msg("\"%s\" is not in what `ltrain %s` said:\n%s", word, command, text);
}

struct result e2e_refuses(int status, const char *words, const struct launch *how, const char *format, ...)
{
    char copy[1024], *rest = copy;
    va_list args;
    va_start(args, format);
    struct result r = run(how, format, args);
    va_end(args);
    size_t n = strlen(r.err);
    if (r.status != status)
        fail_msg("ltrain %s\nexits with %d, not %d: %s", command, r.status, status, r.err);
    if (strncmp(r.err, "ltrain: ", 8) != 0 || n < 10 || strchr(r.err, '\n') != r.err + n - 1)
        fail_msg("ltrain %s\nmust say one line `ltrain: SENTENCE`: %s", command, r.err);
    snprintf(copy, sizeof copy, "%s", words);
    for (char *word; (word = strsep(&rest, "|"));)
        e2e_contains(r.err, word);
    return r;
}

/* ---- preparations ---- */

int e2e_private_mounts(void)
{
    return unshare(CLONE_NEWNS) == 0 && mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0 ? 0 : -1;
}

int e2e_can_mount(void)
{
    int status;
    pid_t pid = fork();
    if (pid == 0)
        _exit(e2e_private_mounts() != 0);
    return pid > 0 && waitpid(pid, &status, 0) == pid && WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

/* A preparation that drops a capability. Root would get it back at exec unless it is removed from the bounding set; other users
 * have none to lose. */
int e2e_drop_capability(int capability)
{
    return geteuid() == 0 && prctl(PR_CAPBSET_READ, capability) == 1 ? prctl(PR_CAPBSET_DROP, capability) : 0;
}

int e2e_drop_reading(void)
{
    return e2e_drop_capability(CAP_DAC_OVERRIDE) || e2e_drop_capability(CAP_DAC_READ_SEARCH);
}

int e2e_without_call(unsigned call, int error)
{
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, call, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | (unsigned)error),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog filter = {.len = sizeof code / sizeof *code, .filter = code};
    return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter);
}

int e2e_in_tree(void)
{
    char root[4096];
    return !getcwd(root, sizeof root) || strlen(root) > 4000 || setenv("LTRAIN_SYSTEM_ROOT", strcat(root, "/tree"), 1);
}

int e2e_let_root_start_ranks(void)
{
    setenv("OMPI_ALLOW_RUN_AS_ROOT", "1", 1);
    setenv("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1", 1);
    char options[1024]; /* tests/mpi.sh explains Open MPI's leaks */
    const char *others = getenv("ASAN_OPTIONS");
    snprintf(options, sizeof options, "%s%sdetect_leaks=0", others ? others : "", others ? ":" : "");
    if (!others || !strstr(others, "detect_leaks=0"))
        setenv("ASAN_OPTIONS", options, 1);
    return 0;
}

/* ---- looking at a running program ---- */

int e2e_ended(pid_t pid)
{
    siginfo_t info = {0};
    return waitid(P_PID, (id_t)pid, &info, WEXITED | WNOHANG | WNOWAIT) != 0 || info.si_pid != 0;
}

void e2e_wait_for_output(pid_t pid, const char *word)
{
    for (int there = 0; !there && !e2e_ended(pid);) {
        char *text = e2e_read(stream_names[0], NULL);
        there = strstr(text, word) != NULL;
        free(text);
        clock_sleep_ns(there ? 0 : 5000000);
    }
}

int e2e_count_unsaved(void)
{
    char *text = e2e_read(stream_names[0], NULL);
    int n = 0;
    for (const char *at = text; (at = strstr(at, " not saved: ")); at++)
        n++;
    free(text);
    return n;
}

struct result e2e_stop(const struct launch *how, const char *arguments, const struct stop *at)
{
    enum { TRIES = 20 };
    char word[32];
    long ms = at->ms;
    snprintf(word, sizeof word, "\nstep %d/", at->step);
    for (int i = 0; i < TRIES; i++) {
        e2e_remove("run");
        pid_t pid = e2e_start(how, arguments);
        e2e_wait_for_output(pid, word);
        clock_sleep_ns(ms * 1000000);
        for (int k = 0; k < at->times; k++)
            kill(pid, at->number);
        struct result r = e2e_wait(pid);
        int where = at->where(&r, at->step);
        if (where == 0)
            return r;
        ms = where < 0 ? ms * 2 : ms / 3 + 1;
    }
    fail_msg("ltrain %s\nno signal in %d came where it was to, the last one %ld ms after step %d", arguments, TRIES, ms,
             at->step);
    return (struct result){0};
}

/* ---- files of a run ---- */

struct curve e2e_curve(const char *run_folder)
{
    char path[4096];
    struct curve c = {0};
    snprintf(path, sizeof path, "%s/metrics.jsonl", run_folder);
    char *text = e2e_read(path, NULL), *rest = text;
    for (char *line; (line = strsep(&rest, "\n")) && *line;) {
        json_error_t error;
        json_t *o = json_loads(line, 0, &error);
        if (!o)
            fail_msg("%s: %s: %s", path, error.text, line);
        assert_true(c.n < E2E_MAX_STEPS);
        if (json_integer_value(json_object_get(o, "step")) != c.n + 1)
            fail_msg("%s: step %d is expected here: %s", path, c.n + 1, line);
        c.loss[c.n++] = json_real_value(json_object_get(o, "loss"));
        json_decref(o);
    }
    free(text);
    return c;
}

void e2e_same_curve(const struct curve *a, const struct curve *b, int n)
{
    assert_true(a->n >= n && b->n >= n);
    for (int i = 0; i < n; i++)
        if (memcmp(&a->loss[i], &b->loss[i], sizeof a->loss[i]) != 0)
            fail_msg("the losses of step %d differ: %.17g and %.17g (ltrain %s)", i + 1, a->loss[i], b->loss[i], command);
}
