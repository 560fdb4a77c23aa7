/* Runs one rank on a fake GPU, under mpiexec, until the run ends or fails: `cuda_failures COMM SECONDS RANK WORDS EVENT`.
 *
 * RANK is a rank, or the number of ranks to mean all of them. The fake GPU of that rank gets the settings WORDS
 * (tests/cudasim/fake/fake.h). EVENT (kill, stop, sleep, or none) happens after that rank's first step. Each rank prints `rank R:
 * STATUS: SENTENCE`, and how many bytes NCCL has carried. */
#include "comm/launch.h"
#include "engine/rig.h"
#include "engine/twin.h"
#include "plan/cells.h"

#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

enum { S = 150, BATCH = 2, STEPS = 3 };

static struct comm *comm;

/* Does to this rank what `event` names. */
static void happen(const char *event)
{
    if (strcmp(event, "kill") == 0)
        raise(SIGKILL);
    if (strcmp(event, "stop") == 0)
        raise(SIGSTOP);
    if (strcmp(event, "sleep") == 0)
        sleep(60);
}

static enum status train(struct rig *r, const char *event)
{
    struct sequence batch[BATCH];
    struct model *m;
    double loss, norm;
    TRY(cell_model(FAMILY_LLAMA, 2, &m));
    TRY(rig_start(r, m));
    TRY(session_initialise(r->session, 3));
    for (int i = 0; i < BATCH; i++)
        sequence_random(&batch[i], S, 96, 11 + (uint64_t)i, (const int64_t[]){1, 18, 56, 38, 0});
    for (int i = 0; i < STEPS; i++) {
        TRY(rig_step(r, batch, BATCH, &loss, &norm));
        if (i == 0)
            happen(event);
    }
    for (int i = 0; i < BATCH; i++)
        sequence_free(&batch[i]);
    return rig_flush(r);
}

/* Chooses a mesh with every dimension that this number of ranks allows, shards every parameter, and sends gradients in bf16. */
static void settle(struct rig *r, int size, const char *carrier)
{
    struct plan_request *p = &r->settings.plan;
    rig_defaults(r, S);
    r->comm = comm;
    r->settings.gpu = AUTO;
    r->settings.carrier = strcmp(carrier, "nccl") == 0     ? CARRIER_NCCL
                          : strcmp(carrier, "staged") == 0 ? CARRIER_STAGED
                                                           : CARRIER_AUTO;
    p->device = DEVICE_CUDA;
    p->mesh = (struct mesh){{1, 2, size / 2}};
    p->zero = 3;
    p->grad_dtype = BF16;
    p->batch = p->grad_accum = BATCH;
    p->threads = 1;
}

int main(int argc, char **argv)
{
    struct launch launch;
    struct twin twin;
    struct rig r;
    char words[256];
    if (argc != 6 || !twin_open(getenv("LTRAIN_CUDA_TWIN"), &twin))
        return 77;
    if (launch_detect(NULL, &launch) != OK || comm_create(&launch, 60, &comm) != OK)
        return 1;
    const int rank = comm_rank(comm), mine = atoi(argv[3]) == rank || atoi(argv[3]) == comm_size(comm);
    snprintf(words, sizeof words, "seed=%d,devices=%d,%s", rank, comm_size(comm), mine ? argv[4] : "");
    twin.configure(words);
    settle(&r, comm_size(comm), argv[1]);
    enum status st = comm_set_mesh(comm, &r.settings.plan.mesh);
    comm_set_timeout(comm, atof(argv[2]));
    if (st == OK)
        st = train(&r, mine ? argv[5] : "none");
    if (st != OK && !comm_agreed(comm))
        comm_fail(comm, st, status_message());
    if (st == OK || comm_speak(comm)) /* else a line `ltrain: rank ...` has been written already */
        printf("rank %d: %d: %s\n", rank, st, st == OK ? r.session->carrier.text : status_message());
    fflush(stdout);
    rig_stop(&r);
    if (st == OK && twin.left()[0]) {
        printf("rank %d: left:%s\n", rank, twin.left());
        st = ERR_CORRUPT;
    }
    printf("rank %d: carried %ld\n", rank, twin.nccl_sent());
    fflush(stdout);
    comm_destroy(comm);
    _exit(st != OK);
}
