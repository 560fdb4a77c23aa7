/* Runs one rank of a multi-rank test: `ranks CASE [DP ULYSSES RING]`, under mpiexec. Prints what is wrong and exits 1. */
#include "comm/state.h"
#include "extent.h"
#include "oracle.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { N_LANES = LANE_RING - LANE_WORLD + 1 }; /* lanes that run at once */

static struct comm *c;

static int leave(int code)
{
    fflush(stdout);
    fflush(stderr);
    int broken = comm_broken(c);
    comm_destroy(c);
    if (broken)
        _exit(code);
    return code;
}

#define CHECK(x)                                                                                                          \
    do {                                                                                                                  \
        if (!(x)) {                                                                                                       \
            fprintf(stderr, "rank %d: %s:%d: not so: %s (%s)\n", comm_rank(c), __FILE__, __LINE__, #x, status_message()); \
            comm_fail(c, ERR_INVALID, "a check failed");                                                                  \
            exit(leave(1));                                                                                               \
        }                                                                                                                 \
    } while (0)

static enum status run_op(enum lane lane, enum op_kind op, const struct op_attrs *a, void *const *arg, int send, int recv)
{
    int done = 0;
    TRY(comm_start(c, lane, op, a, arg, send, recv));
    for (;;) {
        TRY(comm_poll(c, lane, &done));
        if (done)
            return OK;
        comm_nap(c);
    }
}

static struct ring_group {
    int members, me, first, stride;
} group_of(enum lane lane)
{
    struct mesh m = comm_mesh(c);
    int place = comm_place(c), j = place % m.degree[MESH_ULYSSES], i = place / m.degree[MESH_ULYSSES] % m.degree[MESH_RING],
        d = place / m.degree[MESH_ULYSSES] / m.degree[MESH_RING];
    if (lane == LANE_ULYSSES)
        return (struct ring_group){m.degree[MESH_ULYSSES], j, place - j, 1};
    if (lane == LANE_RING)
        return (struct ring_group){m.degree[MESH_RING], i, d * m.degree[MESH_RING] * m.degree[MESH_ULYSSES] + j,
                                   m.degree[MESH_ULYSSES]};
    const int all = m.degree[MESH_DP] * m.degree[MESH_ULYSSES] * m.degree[MESH_RING], ep = mesh_degree(&m, MESH_EP);
    if (lane == LANE_EP)
        return (struct ring_group){ep, place % ep, place - place % ep, 1};
    if (lane == LANE_EXPERTS)
        return ep > 1 ? (struct ring_group){all / ep, place / ep, place % ep, ep} : (struct ring_group){1, 0, place, 1};
    const int sequence = m.degree[MESH_ULYSSES] * m.degree[MESH_RING];
    if (lane == LANE_SEQUENCE && m.degree[MESH_DP] > 1 && m.degree[MESH_ULYSSES] > 1 && m.degree[MESH_RING] > 1)
        return (struct ring_group){sequence, place % sequence, d * sequence, 1};
    if (lane > LANE_EXPERTS) /* these meshes have no slices and no stages */
        return (struct ring_group){1, 0, place, 1};
    return (struct ring_group){all, place, 0, 1};
}

static int64_t share_of(int64_t n, int64_t share, int m)
{
    int64_t left = n - m * share;
    return left < 0 ? 0 : left < share ? left : share;
}

static int64_t total_sent(enum lane lane)
{
    struct comm_traffic t = comm_bytes_sent(c, lane);
    return t.same_host + t.other_hosts;
}

static void gathers(enum lane lane, int64_t n, int64_t share)
{
    struct ring_group g = group_of(lane);
    float *src = malloc((size_t)share * 4 + 4), *dst = malloc((size_t)n * 4 + 8);
    struct op_attrs a = {.comm = {.n = n, .share = share, .element = 4}};
    int place = comm_place(c);
    int64_t mine = share_of(n, share, g.me), before = total_sent(lane);
    for (int64_t i = 0; i < share; i++)
        src[i] = i < mine ? input(2, place, i) : 99;
    dst[n] = 77;
    CHECK(run_op(lane, OP_ALL_GATHER, &a, (void *[]){src, dst}, 1, 1) == OK);
    for (int64_t i = 0; i < n; i++)
        CHECK(dst[i] == input(2, g.first + (int)(i / share) * g.stride, i % share));
    CHECK(dst[n] == 77);
    CHECK(total_sent(lane) - before == mine * 4 * (g.members - 1));
    /* elements are bytes, and the rank's own part is already in its place */
    a.comm.element = 1;
    for (int64_t i = 0; i < n; i++)
        ((char *)dst)[i] = (char)(i / share == g.me ? i + g.me : 0);
    CHECK(run_op(lane, OP_ALL_GATHER, &a, (void *[]){(char *)dst + g.me * share, dst}, 1, 1) == OK);
    for (int64_t i = 0; i < n; i++)
        CHECK(((char *)dst)[i] == (char)(i + i / share));
    free(src);
    free(dst);
}

static void reductions(enum lane lane, int64_t n, int64_t share, int type)
{
    struct ring_group g = group_of(lane);
    struct op_attrs a = {.comm = {.n = n, .share = share, .type = type, .element = 4}};
    int64_t work_bytes = comm_workspace_bytes(OP_REDUCE_SCATTER, &a, g.members), wire = type == BF16 ? 2 : 4;
    float *src = malloc((size_t)n * 4 + 4), *dst = malloc((size_t)share * 4 + 4);
    char *work = malloc((size_t)work_bytes + 8);
    for (int64_t i = 0; i < n; i++)
        src[i] = input(3, comm_place(c), i);
    for (int64_t i = 0; i <= share; i++)
        dst[i] = 77;
    memset(work, 0x5a, (size_t)work_bytes + 8);
    int64_t mine = share_of(n, share, g.me), before = total_sent(lane);
    CHECK(comm_workspace_bytes(OP_ALL_REDUCE, &a, g.members) == work_bytes);
    CHECK(run_op(lane, OP_REDUCE_SCATTER, &a, (void *[]){src, dst, work}, 1, 1) == OK);
    for (int64_t i = 0; i < share; i++)
        CHECK(dst[i] == (i < mine ? summed(3, g.first, g.stride, g.members, g.me * share + i, type == BF16) : 0));
    CHECK(dst[share] == 77);
    CHECK(memcmp(work + work_bytes, "ZZZZZZZZ", 8) == 0);
    for (int64_t i = 0; i < n; i++)
        CHECK(src[i] == input(3, comm_place(c), i));
    CHECK(total_sent(lane) - before == (n - mine) * wire);
    before = total_sent(lane);
    CHECK(run_op(lane, OP_ALL_REDUCE, &a, (void *[]){src, work}, 1, 1) == OK);
    for (int64_t i = 0; i < n; i++)
        CHECK(src[i] == summed(3, g.first, g.stride, g.members, i, type == BF16));
    CHECK(total_sent(lane) - before == (n - mine) * wire + mine * 4 * (g.members - 1));
    free(src);
    free(dst);
    free(work);
}

static void exchanges(enum lane lane, int64_t share)
{
    struct ring_group g = group_of(lane);
    int64_t n = share * g.members;
    float *src = malloc((size_t)n * 4 + 4), *dst = malloc((size_t)n * 4 + 4);
    struct op_attrs a = {.comm = {.n = n, .share = share, .element = 4}};
    for (int64_t i = 0; i < n; i++)
        src[i] = input(4, comm_place(c), i);
    dst[n] = 77;
    CHECK(run_op(lane, OP_ALL_TO_ALL, &a, (void *[]){src, dst}, 1, 1) == OK);
    for (int64_t i = 0; i < n; i++)
        CHECK(dst[i] == input(4, g.first + (int)(i / share) * g.stride, g.me * share + i % share));
    a.comm.n = share;
    for (int distance = -g.members; distance <= g.members; distance++)
        for (int pattern = 0; pattern < 3; pattern++) {
            /* the members that send: all, the even ones, none */
            int to = ((g.me + distance) % g.members + g.members) % g.members,
                from = ((g.me - distance) % g.members + g.members) % g.members;
            int send = pattern == 0 || (pattern == 1 && g.me % 2 == 0), recv = pattern == 0 || (pattern == 1 && from % 2 == 0);
            int64_t before = total_sent(lane);
            a.comm.distance = distance;
            for (int64_t i = 0; i < share; i++)
                dst[i] = 77;
            CHECK(run_op(lane, OP_EXCHANGE, &a, (void *[]){src, dst}, send, recv) == OK);
            for (int64_t i = 0; i < share; i++)
                CHECK(dst[i] == (recv ? input(4, g.first + from * g.stride, i) : 77));
            CHECK(total_sent(lane) - before == (send && to != g.me ? share * 4 : 0));
        }
    CHECK(dst[n] == 77);
    free(src);
    free(dst);
}

/* Rows that a root deals are each member's share, zero beyond the last; collected they are the root's again; shifted they are the
 * next member's, and nobody's behind the last. Members that get nothing keep what they have. */
static void between_stages(int64_t n)
{
    struct ring_group g = group_of(LANE_WORLD);
    const int64_t share = ceil_div(n, g.members);
    float *whole = calloc((size_t)n, 4), *part = calloc((size_t)share, 4);
    for (int root = 0; root < g.members; root++) {
        struct op_attrs a = {.comm = {.n = n, .share = share, .element = 4, .root = root}};
        for (int64_t i = 0; i < n; i++)
            whole[i] = input(6, comm_place(c), i);
        for (int64_t i = 0; i < share; i++)
            part[i] = 77;
        CHECK(run_op(LANE_WORLD, OP_DEAL, &a, (void *[]){whole, part}, 1, 1) == OK);
        for (int64_t i = 0; i < share; i++)
            CHECK(part[i] == (g.me * share + i < n ? input(6, g.first + root * g.stride, g.me * share + i) : 0));
        for (int64_t i = 0; i < n; i++)
            whole[i] = 77;
        CHECK(run_op(LANE_WORLD, OP_COLLECT, &a, (void *[]){part, whole}, 1, 1) == OK);
        for (int64_t i = 0; i < n; i++)
            CHECK(whole[i] == (g.me == root ? input(6, g.first + root * g.stride, i) : 77));
    }
    for (int distance = -1; distance <= 1; distance += 2) {
        struct op_attrs a = {.comm = {.n = share, .share = share, .element = 4, .distance = distance}};
        const int from = g.me - distance, to = g.me + distance, receives = from >= 0 && from < g.members;
        for (int64_t i = 0; i < share; i++) {
            part[i] = 77;
            whole[i] = input(7, comm_place(c), i);
        }
        CHECK(run_op(LANE_WORLD, OP_SHIFT, &a, (void *[]){whole, part}, to >= 0 && to < g.members, receives) == OK);
        for (int64_t i = 0; i < share; i++)
            CHECK(part[i] == (receives ? input(7, g.first + from * g.stride, i) : 77));
    }
    free(whole);
    free(part);
}

/* Tests collectives with small chunks, so that small arrays have borders of every kind. Shares lie below, at and above a chunk,
 * and span several; the first few shares are one of each kind. */
static void collectives(void)
{
    static const int64_t shares[] = {1, 16, 17, 48, 2, 15, 31, 32, 33, 200, 1001};
    const int n = extent(4, comm_hosts(c) > 1 ? 4 : 11, 11);
    for (enum lane lane = LANE_WORLD; lane < LANES; lane++) {
        int p = c->group[lane - LANE_WORLD].members;
        CHECK(p == group_of(lane).members && comm_member(c, lane) == group_of(lane).me);
        for (int s = 0; s < n; s++) {
            int64_t share = shares[s], full = share * p;
            int64_t sizes[] = {full, full - 1, full - share + 1, full - share, 1, full - share - share / 2};
            for (int k = 0; k < 6; k++) {
                if (sizes[k] < 1)
                    continue;
                gathers(lane, sizes[k], share);
                reductions(lane, sizes[k], share, F32);
                reductions(lane, sizes[k], share, BF16);
            }
            exchanges(lane, share);
        }
    }
    for (int s = 0; s < n; s++)
        between_stages(shares[s] * 3 + 1);
}

enum { EXPERTS_EACH = 3, PAIRS = 41 };

/* Returns how many of a member's pairs an expert gets. kind 0: any; 1: all are the last member's; 2: the last member has none. */
static int32_t pairs_of(int kind, int member, int expert, int members)
{
    const int owner = expert / EXPERTS_EACH;
    if ((kind == 1 && owner < members - 1) || (kind == 2 && owner == members - 1))
        return 0;
    return (int32_t)((expert * 7 + member * 5 + kind) % 4);
}

/* Sends rows of pairs to the members with their experts and back: each arrives where it belongs, sizes are the counts, and the bytes
 * sent are the rows that other members' experts get. */
static void dispatches(int kind, int columns)
{
    struct ring_group g = group_of(LANE_EP);
    const int experts = g.members * EXPERTS_EACH, most = g.members * PAIRS;
    int32_t *all = calloc((size_t)(g.members * (experts + 1)), sizeof *all);
    float *src = calloc((size_t)(PAIRS * columns), 4), *there = calloc((size_t)(most * columns + 1), 4),
          *back = calloc((size_t)(PAIRS * columns + 1), 4);
    struct op_attrs a = {.comm = {.n = most, .share = PAIRS, .element = 4 * columns, .type = experts}};
    for (int m = 0; m < g.members; m++)
        for (int e = 0; e < experts; e++)
            all[m * (experts + 1) + e + 1] = all[m * (experts + 1) + e] + pairs_of(kind, m, e, g.members);
    const int32_t *own = all + g.me * (experts + 1);
    CHECK(own[experts] <= PAIRS);
    for (int i = 0; i < PAIRS * columns; i++)
        src[i] = input(5, comm_place(c), i);
    for (int i = 0; i <= most * columns; i++)
        there[i] = 77;
    back[PAIRS * columns] = 77;
    const int64_t before = total_sent(LANE_EP), stay = own[(g.me + 1) * EXPERTS_EACH] - own[g.me * EXPERTS_EACH];
    CHECK(run_op(LANE_EP, OP_DISPATCH, &a, (void *[]){src, there, all}, 1, 1) == OK);
    CHECK(total_sent(LANE_EP) - before == (own[experts] - stay) * 4 * columns);
    int at = 0;
    for (int m = 0; m < g.members; m++) {
        const int32_t *of = all + m * (experts + 1);
        for (int i = of[g.me * EXPERTS_EACH]; i < of[(g.me + 1) * EXPERTS_EACH]; i++, at++)
            for (int j = 0; j < columns; j++)
                CHECK(there[at * columns + j] == input(5, g.first + m * g.stride, i * columns + j));
    }
    for (int i = at * columns; i <= most * columns; i++)
        CHECK(there[i] == 77); /* nothing is written behind the rows that arrive */
    CHECK(run_op(LANE_EP, OP_RETURN, &a, (void *[]){there, back, all}, 1, 1) == OK);
    CHECK(memcmp(back, src, (size_t)(own[experts] * columns) * 4) == 0 && back[PAIRS * columns] == 77);
    all[g.me * (experts + 1) + 1] = -1;
    CHECK(comm_start(c, LANE_EP, OP_DISPATCH, &a, (void *[]){src, there, all}, 1, 1) == ERR_CORRUPT);
    free(all);
    free(src);
    free(there);
    free(back);
}

/* Sends messages of several chunks of the ordinary size, and of several segments. */
static void large(void)
{
    int p = comm_size(c);
    c->chunk = (int64_t)16 << 20;
    int64_t share = p == 2 ? ((int64_t)4 << 20) + 1 : 700001; /* just beyond 16 MiB; several chunks of a smaller size */
    if (p > 2)
        c->chunk = 1 << 20;
    gathers(LANE_WORLD, share * p - 5, share);
    share = p == 2 ? ((int64_t)5 << 20) + 3 : 700001; /* three segments of 2^21 elements */
    reductions(LANE_WORLD, share * p - 5, share, p == 2 ? F32 : BF16);
}

/* Runs all lanes at once, each with an instruction of its own. */
static void lanes_together(void)
{
    enum { N = 5000 };
    static float src[N_LANES][64 * N], dst[N_LANES][64 * N];
    struct op_attrs a[N_LANES];
    static const enum op_kind ops[N_LANES] = {OP_ALL_GATHER, OP_ALL_TO_ALL, OP_EXCHANGE};
    for (int round = 0; round < extent(5, 20, 20); round++) {
        int left = N_LANES, running[N_LANES] = {1, 1, 1};
        for (int l = 0; l < N_LANES; l++) {
            struct ring_group g = group_of(LANE_WORLD + l);
            int64_t n = ops[l] == OP_EXCHANGE ? N : (int64_t)N * g.members;
            a[l] = (struct op_attrs){.comm = {.n = n, .share = N, .element = 4, .distance = 1}};
            for (int64_t i = 0; i < n; i++)
                src[l][i] = input((uint64_t)round, comm_place(c), i);
            CHECK(comm_start(c, LANE_WORLD + l, ops[l], &a[l], (void *[]){src[l], dst[l]}, 1, 1) == OK);
        }
        /* refused, since the lane is busy */
        CHECK(comm_start(c, LANE_WORLD, ops[0], &a[0], (void *[]){src[0], dst[0]}, 1, 1) == ERR_INVALID);
        while (left > 0) {
            for (int l = 0; l < N_LANES; l++) {
                int done = 0;
                if (running[l])
                    CHECK(comm_poll(c, LANE_WORLD + l, &done) == OK);
                running[l] -= done;
                left -= done;
            }
            comm_nap(c);
        }
        struct ring_group g = group_of(LANE_RING);
        for (int64_t i = 0; i < N; i++)
            CHECK(dst[2][i] == input((uint64_t)round, g.first + (g.me + g.members - 1) % g.members * g.stride, i));
    }
}

/* Tells whether the status is another rank's message with the rank's number, and with its host if there are several hosts. */
static int is_said_by(int rank, const char *words)
{
    char begin[32], end[64];
    const char *said = status_message();
    snprintf(begin, sizeof begin, comm_hosts(c) > 1 ? "rank %d on " : "rank %d: ", rank);
    snprintf(end, sizeof end, ": %s", words);
    const size_t n = strlen(said), m = strlen(end);
    return strncmp(said, begin, strlen(begin)) == 0 && n >= m && strcmp(said + n - m, end) == 0;
}

static void between_programs(void)
{
    int rank = comm_rank(c), size = comm_size(c);
    static char big[20 << 20]; /* two pieces */
    for (int bytes = 1; bytes < 100; bytes += 7) {
        char own[100], all[64 * 100];
        memset(own, rank + 1, (size_t)bytes);
        CHECK(comm_gather(c, own, bytes, all) == OK);
        for (int i = 0; i < size * bytes; i++)
            CHECK(all[i] == i / bytes + 1);
    }
    for (int root = 0; root < size; root++) {
        int64_t n = root == 0 ? (int64_t)sizeof big : root * 1000;
        memset(big, rank == root ? root + 1 : 0, (size_t)n);
        CHECK(comm_broadcast(c, root, big, n) == OK);
        for (int64_t i = 0; i < n; i += 7)
            CHECK(big[i] == root + 1);
    }
    double x[3] = {(rank + 1) * 0.1, 1e300, rank == size - 1 ? -1e-30 : 0}, sum = 0.1;
    for (int r = 1; r < size; r++)
        sum += (r + 1) * 0.1;
    CHECK(comm_sum(c, x, 3) == OK && x[0] == sum && x[2] == -1e-30);
    CHECK(comm_barrier(c) == OK);
    CHECK(comm_agree(c, OK) == OK);
    /* one rank fails, all fail, two fail in different ways; the communicator can still be used */
    enum status st = rank == size - 1 ? status_fail(ERR_IO, "my disk is full") : OK;
    CHECK(comm_agree(c, st) == ERR_IO && is_said_by(size - 1, "my disk is full"));
    CHECK(comm_agree(c, status_fail(ERR_INVALID, "--lr: nonsense")) == ERR_INVALID &&
          strcmp(status_message(), "--lr: nonsense") == 0);
    st = status_fail(rank ? ERR_NOMEM : ERR_IO, "failure of %d", rank);
    CHECK(comm_agree(c, st) == ERR_IO && is_said_by(0, "failure of 0"));
    CHECK(comm_agree(c, OK) == OK && !comm_broken(c));
    CHECK(comm_set_mesh(c, &(struct mesh){{size + 1, 1, 1}}) == ERR_INVALID);
    CHECK(comm_set_mesh(c, &(struct mesh){{rank ? size : 1, rank ? 1 : size, 1}}) == ERR_INVALID &&
          strstr(status_message(), "has the mesh"));
    const char *hosts = getenv("LTRAIN_TEST_HOSTS"); /* the number of hosts, two of which have one name */
    CHECK(!hosts || comm_hosts(c) == atoi(hosts));
    CHECK(comm_hosts(c) > 1 || (comm_local_size(c) == size && comm_local_rank(c) == rank && comm_per_host(c) == size));
}

/* Exchanges messages for ever; a rank that fails prints that on stdout and exits 1. `doomed` names what rank 1 does to itself
 * after a while; after `pause` all ranks end normally. */
static void until_failure(const char *doomed)
{
    enum { LONG_SECONDS = 600 }; /* longer than test_ranks.sh waits for any end */
    static float src[1 << 16], dst[1 << 16], work[1 << 20];
    c->chunk = 1 << 14;
    signal(SIGTERM, SIG_IGN); /* sent by mpiexec when a rank has died */
    for (int round = 0;; round++) {
        int hit = comm_rank(c) == 1 && round == 21;
        struct op_attrs a = {.comm = {.n = 1 << 16, .share = (1 << 16) / comm_size(c) + 1, .element = 4}};
        if (hit && strcmp(doomed, "kill") == 0)
            raise(SIGKILL);
        if (round == 60 && strcmp(doomed, "pause") == 0)
            return;
        if (hit && (strcmp(doomed, "stop") == 0 || strcmp(doomed, "pause") == 0))
            raise(SIGSTOP);
        if (hit && strcmp(doomed, "exit") == 0)
            _exit(0);
        if (strcmp(doomed, "busy") == 0 && comm_rank(c) != 1 && round == 21)
            sleep(LONG_SECONDS); /* stands for a long computation, during which rank 1's death is noticed elsewhere */
        if (hit && strcmp(doomed, "busy") == 0)
            raise(SIGKILL);
        if (hit && strcmp(doomed, "stall") == 0)
            sleep(LONG_SECONDS);
        if (hit && strcmp(doomed, "differ") == 0)
            a.comm.n -= 1000;
        if (hit && strcmp(doomed, "fail") == 0) {
            comm_fail(c, ERR_IO, "my disk is full");
            printf("rank 1 failed by itself\n");
            exit(leave(1));
        }
        if (hit && strcmp(doomed, "elsewhere") == 0)
            (void)comm_barrier(c);
        enum status st =
            strcmp(doomed, "elsewhere") == 0 ? comm_agree(c, OK)
            : round % 2                      ? run_op(LANE_WORLD, OP_ALL_REDUCE, &a, (void *[]){src, work}, 1, 1)
                        : run_op(LANE_RING, OP_EXCHANGE, &(struct op_attrs){.comm = {.n = 1 << 16, .element = 4, .distance = 1}},
                                 (void *[]){src, dst}, 1, 1);
        if (st != OK) {
            if (comm_speak(c)) /* else a line `ltrain: rank ...` has been written already */
                printf("rank %d: %d: %s\n", comm_rank(c), st, status_message());
            CHECK(comm_broken(c));
            CHECK(comm_barrier(c) == ERR_PEER);
            exit(leave(1));
        }
    }
}

int main(int argc, char **argv)
{
    struct launch l;
    enum status st = launch_detect(NULL, &l);
    if (argc < 2 || st != OK || (st = comm_create(&l, argc > 5 ? atof(argv[5]) : 60, &c)) != OK) {
        fprintf(stderr, "rank %d: %s\n", l.rank, status_message());
        _exit(2);
    }
    struct mesh mesh = {{comm_size(c), 1, 1}};
    if (argc > 4)
        mesh = (struct mesh){{atoi(argv[2]), atoi(argv[3]), atoi(argv[4])}};
    mesh.degree[MESH_EP] = comm_size(c) % 2 ? comm_size(c) : 2;
    CHECK(comm_set_mesh(c, &mesh) == OK);
    c->chunk = 64;
    if (strcmp(argv[1], "all") == 0) {
        collectives();
        for (int i = 0; i < 6; i++)
            dispatches(i / 2, i % 2 ? 33 : 1);
        lanes_together();
        between_programs();
        CHECK(comm_per_host(c) % mesh.degree[MESH_ULYSSES] || comm_bytes_sent(c, LANE_ULYSSES).other_hosts == 0);
        CHECK(comm_rank_at(c, comm_place(c)) == comm_rank(c));
    } else if (strcmp(argv[1], "large") == 0) {
        large();
    } else {
        until_failure(argv[1]);
    }
    return leave(0);
}
