/* The agreement on where all ranks cut a section short.
 *
 * A rank that wants a cut (comm_cut_for), or hears that another one does, casts its vote, once. The vote says how many sections
 * it has done, and how many collectives it has started on each lane. Until it has the votes of all ranks it holds: it starts no
 * collective and ends no section. States: running, then (comm_cut_look, votes_hear) holding, then (the last votes_hear) decided.
 *
 * 1. All ranks decide by the same votes: the section after the most sections that any rank has done is cut. A rank still in the
 * section before runs that to its end, as the others have.
 *
 * 2. In a section that is cut, all take part in a collective that any rank has started (comm_owes): its members wait for each
 * other. The data sent was perhaps never computed; nobody uses it.
 *
 * 3. Collectives that must run (program/updates.h) are not left out on any rank.
 *
 * 4. After that the ranks' counts differ: nothing runs any more but what must.
 *
 * 5. If another thread than the one that talks starts the collectives (comm_turn_take), it counts them under one lock with the
 * vote.
 *
 * A rank between programs votes while it waits for another one (patience_look), so nobody holds for longer than a message takes.
 * A single rank decides when somebody asks, at the latest at the section's end: a kernel that has seen comm_cut_flag may have
 * ended early. */
#include "comm/state.h"

#include "base/clock.h"

static const int64_t LOOK_NS = 5000000;

void comm_cut_for(struct comm *c, const atomic_int *wanted)
{
    c->votes.wanted = wanted;
}

static int is_wanted(const struct comm *c)
{
    return c->votes.wanted && atomic_load(c->votes.wanted) != 0;
}

int comm_is_cut(struct comm *c)
{
    if (!c)
        return 0;
    if (c->launch.size == 1 && is_wanted(c))
        atomic_store(&c->votes.cut, 1);
    return atomic_load(&c->votes.cut);
}

const atomic_int *comm_cut_flag(const struct comm *c)
{
    if (!c)
        return NULL;
    return c->launch.size == 1 && c->votes.wanted ? c->votes.wanted : &c->votes.cut;
}

int comm_cut_holds(const struct comm *c)
{
    return c->launch.size > 1 && atomic_load(&c->votes.n_heard) > 0 && !atomic_load(&c->votes.decided);
}

enum status comm_cut_look(struct comm *c)
{
    struct votes *x = &c->votes;
    if (c->launch.size == 1 || atomic_load(&x->decided))
        return OK;
    TRY(failure_broken(c));
    if (is_wanted(c))
        TRY(failure_of_wire(c, votes_cast(c)));
    if (!comm_cut_holds(c)) {
        int64_t now = clock_ns();
        if (now - x->looked_ns < LOOK_NS)
            return OK;
        x->looked_ns = now;
        patience_begin(&x->patience);
        return failure_hear(c);
    }
    return patience_look(c, &x->patience, votes_missing(c), "the agreement on where to stop");
}

static int owes(const struct votes *x, enum lane lane)
{
    return x->own.started[lane - LANE_WORLD] < x->most.started[lane - LANE_WORLD];
}

int comm_owes(struct comm *c, enum lane lane)
{
    pthread_mutex_lock(&c->votes.lock);
    const int does = owes(&c->votes, lane);
    pthread_mutex_unlock(&c->votes.lock);
    return does;
}

enum comm_turn comm_turn_take(struct comm *c, enum lane lane, int must)
{
    struct votes *x = &c->votes;
    enum comm_turn turn = COMM_TURN_NOT_YET;
    pthread_mutex_lock(&x->lock);
    if (!comm_cut_holds(c)) {
        turn = !must && comm_is_cut(c) && !owes(x, lane) ? COMM_TURN_OVER : COMM_TURN;
        x->own.started[lane - LANE_WORLD]++;
    }
    pthread_mutex_unlock(&x->lock);
    return turn;
}

void comm_pass(struct comm *c, enum lane lane)
{
    c->votes.own.started[lane - LANE_WORLD]++;
}

enum status comm_section_end(struct comm *c, int *cut)
{
    c->naps = 0;
    patience_begin(&c->votes.patience);
    while (comm_cut_holds(c)) {
        TRY(comm_cut_look(c));
        comm_nap(c);
    }
    *cut = comm_is_cut(c);
    c->votes.own.sections += !*cut;
    votes_apply(&c->votes);
    return OK;
}
