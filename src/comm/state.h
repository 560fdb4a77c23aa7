/* Private to comm: the communicator's insides, shared by its files. */
#ifndef LTRAIN_COMM_STATE_H
#define LTRAIN_COMM_STATE_H

#include "base/num.h"
#include "comm/comm.h"
#include "comm/flows.h"
#include "comm/wire.h"

#include <pthread.h>
#include <stdatomic.h>
#include <sys/types.h>

enum { COMM_LANES = LANES - LANE_WORLD };

struct patience {
    int64_t last_ns, waited_ns, looked_ns;
    int between; /* programs: ranks may be busy with files */
};

/* What every rank knows of every other. */
struct peer {
    char host[HOST_NAME];
    int32_t rank;
    int32_t pid;
    uint64_t boot;   /* its kernel's: hosts may have one name */
    int32_t number;  /* of its host among those of that name, from 1 on */
    uint64_t born;   /* /proc/PID/stat's start time: a number that is used again, or seen in another pid namespace, differs */
    int32_t here;    /* on this host, and its process can be seen */
    int32_t stopped; /* how many looks in a row */
    int32_t said;    /* a line has named it as one that stands still */
};

/* How far a rank is, when it stops starting collectives: sections done, and collectives started on each lane, since the beginning
 * (every rank starts the same ones). */
struct cut_vote {
    int64_t sections, started[COMM_LANES];
};

/* What ranks say on the control channel: a failure, or (status OK) a vote, or how far they are. */
enum { NOTICE_ASKS = 1, NOTICE_ANSWERS };
struct notice {
    int32_t status, origin;
    union {
        char text[1000];
        struct cut_vote vote;
        int64_t place;
    };
};

/* See behind.c. */
struct behind {
    int64_t own, *place; /* how far this rank is, and what the others have said since it asked: [size]; -1: nothing */
    int asked;
    struct notice *out; /* [2 * size]: questions, answers */
    uint8_t *silent;    /* [size]: asked (still.c), and nothing has come from there since */
    int64_t round_ns;   /* when they were asked */
};

/* See cut.c. */
struct votes {
    const atomic_int *wanted; /* NULL: nothing is cut */
    pthread_mutex_t lock;     /* what follows, where another thread starts collectives (comm_turn_take) */
    struct cut_vote own;      /* how far this rank is */
    struct cut_vote most;     /* of the votes so far, each the largest */
    uint8_t *heard;           /* [size]: that rank's vote is there; own: it has been cast */
    atomic_int n_heard;
    atomic_int decided; /* they are all there */
    atomic_int cut;     /* the section that is under way is, and all from then on */
    int64_t looked_ns;
    struct patience patience;
    struct notice out;
};

/* Bytes for or from one member, cut into chunks; two may be in flight. With `stride` chunk k lies in the (k % 2)-th of two
 * places. */
struct flow {
    char *base;
    int64_t bytes, chunk, stride;
    int64_t posted, chunks;
};

struct transfer {
    enum op_kind op;
    struct op_attrs attrs;
    void *arg[3];
    char *own_to; /* own part, copied while the messages travel */
    const char *own_from;
    int64_t own_bytes;
    int64_t in_flight, unposted;
    int reducing;              /* halves of the reductions */
    int64_t reduced, segments; /* of the own share */
    int64_t piece;             /* elements of a segment */
    int arrived[2];
};

struct group {
    int members, me, first, stride; /* member m has place first + m * stride */
    enum channel channel;
    struct flow *send, *recv; /* [members] */
    int busy;
    struct transfer t;
    struct patience patience;
    struct comm_traffic sent;
};

struct comm {
    struct launch launch;
    struct mesh mesh;
    struct wire *wire; /* NULL: alone */
    struct peer *peer; /* [size] */
    int *rank_at;      /* [size], by place */
    int place;
    struct group group[COMM_LANES];
    int64_t chunk;
    _Atomic int64_t timeout_ns;
    struct lastword *word; /* NULL: alone, or on the way out */
    int hosts, per_host, next_look;
    int64_t host_calls;         /* so far */
    char *host_room, *host_all; /* messages of calls between programs; what they gathered: HOST_SMALL bytes of each rank */
    int64_t host_room_bytes;
    enum status broken;
    int told;   /* the others know */
    int agreed; /* on a failure, last time */
    char sentence[1024];
    struct notice in, out;
    struct votes votes;
    struct patience outside; /* for what another library carries */
    struct behind behind;
    int64_t programs; /* so far, in which it does */
};

static inline struct group *comm_group(struct comm *c, enum lane lane)
{
    return &c->group[lane - LANE_WORLD];
}

/* failure.c */
void patience_begin(struct patience *p);
/* One look after nothing has happened: own deadline, other ranks' notices, processes on this host. `missing`: the rank that is
 * waited for (-1: not known), `what` is for people. */
enum status patience_look(struct comm *c, struct patience *p, int missing, const char *what);
enum status failure_listen(struct comm *c); /* posts the receive of the next notice */
enum status failure_hear(struct comm *c);   /* takes all notices that have come: a thousand ranks' votes come at once */
/* Breaks the communicator with status_message as the sentence, unless it is broken already; returns what it is broken with. */
enum status failure_break(struct comm *c, enum status code);
enum status failure_break_and_tell(struct comm *c);
/* What the wire said: its failures, too, are the end of the communication. */
enum status failure_of_wire(struct comm *c, enum status st);
enum status failure_broken(const struct comm *c);
void failure_tell(struct comm *c);

/* votes.c: what the wire says goes to the caller */
/* Tells all others how far this rank is, once. */
enum status votes_cast(struct comm *c);
/* A vote has come (c->in); casts the own one. */
enum status votes_hear(struct comm *c);
/* Sets `cut` where the votes say so. */
void votes_apply(struct votes *x);
/* A rank whose vote is missing; -1: none. */
int votes_missing(const struct comm *c);

/* behind.c: what the wire says goes to the caller */
enum status behind_ask(struct comm *c);
enum status behind_hear(struct comm *c);               /* a rank has said how far it is (c->in) */
int behind_rank(const struct comm *c);                 /* -1: it is not known */
enum status behind_ask_rank(struct comm *c, int rank); /* one rank, which is silent until it answers */

/* peer.c */
enum peer_life { PEER_ALIVE, PEER_STOPPED, PEER_DEAD };
void peer_self(struct peer *p);
void peer_locate(struct comm *c);
enum peer_life peer_look(const struct peer *p);
/* The first other rank of this host whose process is in that state; -1: none. Safe from any thread. */
int peer_found(const struct comm *c, enum peer_life life);

/* still.c */
/* Counts a look at a process of this host, and says so once it has been stopped for some seconds, and once it goes on. */
void still_look(struct comm *c, int rank, enum peer_life life);
/* Asks the ranks that cannot be seen here, and names those that do not answer. What the wire says goes to the caller. */
enum status still_ask(struct comm *c, const struct patience *p);
/* A rank that stands still, *life: PEER_STOPPED or, if it is only silent, PEER_ALIVE; -1: none is known. */
int still_rank(const struct comm *c, enum peer_life *life);

/* lastword.c */
enum status lastword_create(struct comm *c); /* after peer_locate */
void lastword_destroy(struct comm *c);
void lastword_broken(struct comm *c);                        /* c->sentence is known */
void lastword_doing(struct comm *c, enum lane lane, int op); /* -1: done */

/* host.c */
enum { HOST_SMALL = 64 };
enum status host_create(struct comm *c); /* comm_destroy frees */

/* groups.c */
void group_set_places(struct comm *c); /* after peer_locate */
/* The rank of a group's member. */
static inline int group_rank(const struct comm *c, const struct group *g, int member)
{
    return c->rank_at[g->first + member * g->stride];
}
void group_free(struct comm *c);

#endif
