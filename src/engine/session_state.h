/* The state of a session in its homes, by unit: parameters, fp32 masters, moments, gradients.
 *
 * Masters exist where the update works on other values than the parameters; gradients while an update is pending. */
#ifndef LTRAIN_ENGINE_SESSION_STATE_H
#define LTRAIN_ENGINE_SESSION_STATE_H

#include "engine/session.h"

enum state_kind { STATE_PARAM, STATE_MASTER, STATE_M, STATE_V, STATE_GRAD };
_Static_assert(ORIGIN_KINDS == STATE_V + 1, "kinds of state that are copied");
enum state_access { STATE_READ, STATE_WRITE };

/* Returns the type in which a unit's state of a kind is stored. */
enum dtype session_state_type(const struct session *s, const struct model_unit *unit, enum state_kind kind);
/* Ranks' parts of a unit's state. HELD_BY_ALL: every rank has all of it; HELD_IN_SHARDS: each has elements of its own;
 * HELD_IN_COPIES: each has those of its experts or slice, as the other members of session_copies_lane do. */
enum state_holding { HELD_BY_ALL, HELD_IN_SHARDS, HELD_IN_COPIES };
enum state_holding session_holding(const struct session *s, int unit, enum state_kind kind);
/* Returns the lane whose members hold the same elements of units that are held in copies. */
enum lane session_copies_lane(const struct session *s);
/* Tells whether another rank speaks for this rank's elements of a parameter, by its number in the whole model: elements that all slices of the layer have are the
 * first slice's, unless they are sharded. */
int session_repeats(const struct session *s, int param, enum state_kind kind);

/* Tells whether this rank's elements of a unit are those of the run: not of an embedding that another stage computes. */
int session_answers_for(const struct session *s, int unit);

/* Returns this rank's index of a unit of the whole model; -1: its stage of a pipeline has none of it, or does not answer for it. */
int session_unit(const struct session *s, int of_whole);

/* Visits n elements of the unit from `first` on, as fp32; to be filled when writing. */
typedef enum status state_visitor(void *user, int unit, int64_t first, int64_t n, float *data);
/* Calls visit for every piece that this rank holds of the unit's state, at most a group at a time, reading from or writing to its
 * home. Nothing else may run. A unit without such state is no error. */
enum status session_visit(struct session *s, int unit, enum state_kind kind, enum state_access access, state_visitor *visit,
                          void *user);

/* Visits n bytes of the unit's packed range from `first` on; to be filled when writing. */
typedef enum status bytes_visitor(void *user, int unit, int64_t first, int64_t n, uint8_t *data);
/* Visits the unit's quantised matrices, as session_visit does. */
enum status session_visit_packed(struct session *s, int unit, enum state_access access, bytes_visitor *visit, void *user);

/* Elements [first, first + n) of a unit, to be written to `data` in fp32 or bf16. */
struct state_part {
    int unit;
    enum state_kind kind;
    int64_t first, n;
    enum dtype type;
    void *data;
};
/* Fills a part. Called by several threads at once. */
typedef enum status state_filler(void *user, const struct state_part *part);
/* Units [unit, unit + n_units), kinds first_kind to last_kind. */
struct state_range {
    int unit, n_units;
    enum state_kind first_kind, last_kind;
};
/* Fills all that this rank holds of a range, with zeros if `fill` is NULL. Host-reachable parts are written in place. Elsewhere
 * each thread has a part in hand (for drives a whole group), and makes others while one is on its way to a drive or device.
 *
 * Parts begin in the order of units, kinds, elements; the failure reported is the first in this order. Nothing else may run. */
enum status session_fill(struct session *s, struct state_range range, state_filler *fill, void *user);

#endif
