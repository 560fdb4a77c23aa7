#include "doctor/ranks.h"

#include "base/clock.h"
#include "base/sys.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define CLOCK_ROUNDS 5
#define CLOCK_APART 0.5          /* seconds beyond which logs and limits of time are misread */
#define LITTLE_MESSAGE (1 << 20) /* bytes of the first message; each further one has twice as many */
#define LARGE_MESSAGE (64 << 20)
#define LONG_MESSAGE 0.05 /* seconds after which no larger message is sent */
#define SLOW_NETWORK 3e8  /* bytes/s: between two hosts, less means that messages take an office's network */

enum { PATH_TEXT = 4200 };

/* Facts that the others learn about a rank. */
struct member {
    int local_rank, sees; /* sees: 1: the shared file is there */
    double ahead, rate;   /* ahead: seconds by which its clock is ahead of rank 0's; rate: bytes/s from the rank before it */
};

/* Appends ", NAME" of a rank's host to a list that may be full. */
static void append_host(char *text, size_t size, const struct comm *c, int rank)
{
    const size_t n = strlen(text);
    snprintf(text + n, size - n, "%s%s", n ? ", " : "", comm_host(c, rank));
}

static void check_hosts(struct findings *f, const struct comm *c, const struct member *all)
{
    char names[300] = "";
    int least = comm_size(c), most = 0;
    for (int r = 0; r < comm_size(c); r++) {
        if (all[r].local_rank != 0)
            continue;
        append_host(names, sizeof names, c, r);
        int here = 0;
        for (int k = 0; k < comm_size(c); k++)
            here += strcmp(comm_host(c, k), comm_host(c, r)) == 0;
        least = here < least ? here : least;
        most = here > most ? here : most;
    }
    if (least == most)
        findings_add(f, VERDICT_OK, "ranks", "", "%d ranks on %d host%s, %d on each: %s", comm_size(c), comm_hosts(c),
                     comm_hosts(c) > 1 ? "s" : "", most, names);
    else
        findings_add(f, VERDICT_WARNING, "ranks", "give every host as many (mpiexec -ppn N, srun --ntasks-per-node=N)",
                     "%d ranks on %d hosts, %d to %d on each: %s", comm_size(c), comm_hosts(c), least, most, names);
}

static void check_versions(struct findings *f, const struct rank_checks *x)
{
    if (x->fault[0])
        findings_add(f, VERDICT_FAILURE, "versions", "", "%s", x->fault);
    else
        findings_add(f, VERDICT_OK, "versions", "", "all ranks run the same program");
}

static void check_clocks(struct findings *f, const struct comm *c, const struct member *all)
{
    int worst = 0;
    for (int r = 1; r < comm_size(c); r++)
        if (fabs(all[r].ahead) > fabs(all[worst].ahead))
            worst = r;
    const double apart = fabs(all[worst].ahead);
    if (apart > CLOCK_APART)
        findings_add(f, VERDICT_WARNING, "clocks", "start chrony or ntpd there",
                     "the clock of %s is %.3g s %s that of %s: logs are hard to compare", comm_host(c, worst), apart,
                     all[worst].ahead > 0 ? "ahead of" : "behind", comm_host(c, 0));
    else
        findings_add(f, VERDICT_OK, "clocks", "", "at most %.2g s apart", fmax(apart, 0.01));
}

static void check_shared(struct findings *f, const struct rank_checks *x, const struct member *all, const char *path)
{
    const struct comm *c = x->comm;
    const enum verdict bad = x->must_share ? VERDICT_FAILURE : VERDICT_WARNING;
    if (!path[0]) {
        findings_add(f, bad, "shared", "name a directory that can be written by --out", "no file can be made in %s on %s",
                     x->shared, comm_host(c, 0));
        return;
    }
    char names[300] = "";
    int blind = 0;
    for (int r = 0; r < comm_size(c); r++)
        if (!all[r].sees && (blind++ == 0 || all[r].local_rank == 0))
            append_host(names, sizeof names, c, r);
    if (blind)
        findings_add(f, bad, "shared", "name a directory of a shared file system by --out",
                     "%d rank%s not see what rank 0 writes in %s, on: %s", blind, blind > 1 ? "s do" : " does", x->shared, names);
    else
        findings_add(f, VERDICT_OK, "shared", "", "all ranks see what rank 0 writes in %s", x->shared);
}

/* Returns the lowest rate at which a rank received from the one before it, of ranks on one host (across: 0) or two; 0: there are none. */
static double lowest_rate(const struct comm *c, const struct member *all, int across)
{
    double least = 0;
    for (int r = 0; r < comm_size(c); r++) {
        const int from = (r + comm_size(c) - 1) % comm_size(c);
        if ((strcmp(comm_host(c, r), comm_host(c, from)) != 0) == across && (least == 0 || all[r].rate < least))
            least = all[r].rate;
    }
    return least;
}

static void check_messages(struct findings *f, const struct comm *c, const struct member *all)
{
    const double inside = lowest_rate(c, all, 0), across = lowest_rate(c, all, 1);
    char text[160] = "";
    if (inside > 0)
        snprintf(text, sizeof text, "%.3g GB/s within a host", inside * 1e-9);
    if (across > 0)
        snprintf(text + strlen(text), sizeof text - strlen(text), "%s%.3g GB/s between hosts", text[0] ? ", " : "",
                 across * 1e-9);
    const int slow = across > 0 && across < SLOW_NETWORK;
    findings_add(f, slow ? VERDICT_WARNING : VERDICT_OK, "messages",
                 slow ? "see that MPI takes the fast network (ompi_info, fi_info, ucx_info)" : "",
                 "every rank sends to the next one, in memory of the host, at least %s", text);
}

/* Sends `bytes` to the next rank while as many come from the one before; *seconds: until both were done. */
static enum status pass_on(struct comm *c, char *memory, int64_t bytes, double *seconds)
{
    const struct op_attrs attrs = {.comm = {.n = bytes, .share = bytes, .element = 1, .distance = 1}};
    int done = 0;
    TRY(comm_barrier(c));
    const double from = clock_seconds();
    TRY(comm_start(c, LANE_WORLD, OP_EXCHANGE, &attrs, (void *[]){memory, memory + bytes}, 1, 1));
    for (;;) {
        TRY(comm_poll(c, LANE_WORLD, &done));
        if (done)
            break;
        comm_nap(c);
    }
    *seconds = clock_seconds() - from;
    return OK;
}

static enum status measure_messages(struct comm *c, double *rate)
{
    struct mesh mesh = mesh_uniform(1);
    char *memory = sys_calloc(2, LARGE_MESSAGE);
    enum status st = comm_agree(c, memory ? OK : status_no_memory("for messages between ranks"));
    mesh.degree[MESH_DP] = comm_size(c);
    if (st == OK)
        st = comm_set_mesh(c, &mesh);
    double slowest = 0;
    for (int64_t bytes = LITTLE_MESSAGE; st == OK && bytes <= LARGE_MESSAGE && slowest < LONG_MESSAGE; bytes *= 2) {
        double seconds = 0, *all = sys_malloc(sizeof *all * (size_t)comm_size(c));
        st = comm_agree(c, all ? OK : status_no_memory("for messages between ranks"));
        if (st == OK)
            st = pass_on(c, memory, bytes, &seconds);
        if (st == OK)
            st = comm_gather(c, &seconds, sizeof seconds, all);
        for (int r = 0; st == OK && r < comm_size(c); r++)
            slowest = fmax(slowest, all[r]);
        *rate = (double)bytes / fmax(seconds, 1e-9);
        free(all);
    }
    if (!comm_is_busy(c))
        free(memory);
    return st;
}

/* Measures by how much this rank's clock is ahead of rank 0's: the least difference of some rounds, since barriers end at slightly
 * different moments. */
static enum status measure_clock(struct comm *c, double *ahead)
{
    for (int i = 0; i < CLOCK_ROUNDS; i++) {
        TRY(comm_barrier(c));
        const int64_t own = clock_wall_ns();
        int64_t first = own;
        TRY(comm_broadcast(c, 0, &first, sizeof first));
        const double now = (double)(own - first) * 1e-9;
        *ahead = i == 0 || fabs(now) < fabs(*ahead) ? now : *ahead;
    }
    return OK;
}

/* Makes a file with a name of its own in the directory, or in the nearest one above it that is there; path: "" if it cannot be made. */
static void make_file(const char *directory, char path[PATH_TEXT])
{
    char *there = NULL, at[PATH_TEXT];
    snprintf(at, sizeof at, "%s", directory);
    while (!(there = sys_realpath(at)) && errno == ENOENT) {
        char *slash = strrchr(at, '/');
        if (slash > at)
            *slash = 0;
        else
            snprintf(at, sizeof at, "%s", slash ? "/" : ".");
    }
    snprintf(path, PATH_TEXT, "%.4000s/.ltrain-doctor-%d-%llx", there ? there : "", (int)getpid(),
             (unsigned long long)clock_wall_ns());
    free(there);
    const int fd = sys_open_file(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (fd >= 0)
        sys_close(fd);
    else
        path[0] = 0;
}

/* Sets *sees: 1 if this rank sees the file that rank 0 makes; path: that file. */
static enum status look_for_file(const struct rank_checks *x, char path[PATH_TEXT], int *sees)
{
    if (comm_rank(x->comm) == 0)
        make_file(x->shared, path);
    TRY(comm_broadcast(x->comm, 0, path, PATH_TEXT));
    *sees = path[0] && sys_access(path, F_OK) == 0;
    const enum status st = comm_barrier(x->comm);
    if (comm_rank(x->comm) == 0 && path[0])
        sys_unlink(path);
    return st;
}

enum status doctor_ranks(struct findings *f, const struct rank_checks *x)
{
    struct comm *c = x->comm;
    struct member own = {.local_rank = comm_local_rank(c)}, *all = sys_calloc((size_t)comm_size(c), sizeof *all);
    char path[PATH_TEXT] = "";
    enum status st = comm_agree(c, all ? OK : status_no_memory("for what the ranks find"));
    if (st == OK)
        st = measure_clock(c, &own.ahead);
    if (st == OK)
        st = look_for_file(x, path, &own.sees);
    if (st == OK)
        st = measure_messages(c, &own.rate);
    if (st == OK)
        st = comm_gather(c, &own, sizeof own, all);
    if (st == OK && comm_rank(c) == 0) {
        check_hosts(f, c, all);
        check_versions(f, x);
        check_clocks(f, c, all);
        check_shared(f, x, all, path);
        check_messages(f, c, all);
    }
    free(all);
    return st;
}

/* Findings of other hosts; host[i]: names of those that have finding i, the first of which worded it. */
struct elsewhere {
    struct findings f;
    char host[FINDINGS][300];
};

static int is_alike(const struct finding *a, const struct finding *b)
{
    return a->verdict == b->verdict && strcmp(a->check, b->check) == 0;
}

/* Tells whether a host's finding is one that rank 0's host has in the same words. */
static int is_known(const struct findings *own, const struct finding *x)
{
    for (int i = 0; i < own->n; i++)
        if (is_alike(&own->at[i], x) && strcmp(own->at[i].text, x->text) == 0)
            return 1;
    return 0;
}

/* Takes in what is wrong on another host: a finding of each check and verdict, with the names of its hosts. */
static void take_in(struct elsewhere *e, const struct findings *own, const struct findings *other, const struct comm *c, int rank)
{
    for (int i = 0; i < other->n; i++) {
        const struct finding *x = &other->at[i];
        int k = 0;
        if ((x->verdict != VERDICT_WARNING && x->verdict != VERDICT_FAILURE) || is_known(own, x))
            continue;
        while (k < e->f.n && !is_alike(&e->f.at[k], x))
            k++;
        if (k == e->f.n)
            findings_add(&e->f, x->verdict, x->check, x->cure, "%s", x->text);
        if (k < e->f.n)
            append_host(e->host[k], sizeof e->host[k], c, rank);
    }
}

enum status doctor_hosts(struct findings *f, struct comm *c)
{
    const int first = comm_rank(c) == 0;
    struct findings *other = sys_malloc(sizeof *other);
    struct elsewhere *e = sys_calloc(1, sizeof *e);
    int *local = sys_malloc(sizeof *local * (size_t)comm_size(c)), own = comm_local_rank(c);
    enum status st = comm_agree(c, other && e && local ? OK : status_no_memory("for what the hosts find"));
    if (st == OK)
        st = comm_gather(c, &own, sizeof own, local);
    for (int r = 1; st == OK && r < comm_size(c); r++) {
        if (local[r] != 0)
            continue;
        if (r == comm_rank(c))
            *other = *f;
        st = comm_broadcast(c, r, other, sizeof *other);
        if (st == OK && first)
            take_in(e, f, other, c, r);
    }
    for (int i = 0; st == OK && first && i < e->f.n; i++)
        findings_add(f, e->f.at[i].verdict, e->f.at[i].check, e->f.at[i].cure, "on %s: %s", e->host[i], e->f.at[i].text);
    free(other);
    free(e);
    free(local);
    return st;
}
