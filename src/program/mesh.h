/* The dimensions of a mesh: numbers of ranks that share sequences, heads and tokens. */
#ifndef LTRAIN_PROGRAM_MESH_H
#define LTRAIN_PROGRAM_MESH_H

#include "program/program.h"

/* Dimensions in the order in which users read and type them. */
enum mesh_dim { MESH_DP, MESH_ULYSSES, MESH_RING, MESH_TP, MESH_PP, MESH_SLICES, MESH_EP, MESH_DIMS };

/* Ranks along each dimension; in a request AUTO (-1): the planner decides. Expert parallelism (ep) divides the ranks that the other
 * dimensions make: `ep` consecutive places share the experts of every layer out; 0 is as 1. `slices` makes no ranks, either: stages
 * take a sequence in as many slices (plan/ticks.h). */
struct mesh {
    int degree[MESH_DIMS];
};

/* Numbers of layers of each stage, where they differ more than by the remainder of a division. n: number of stages; 0: layers are divided
 * evenly. */
enum { MESH_MOST_STAGES = 64 };
struct mesh_stages {
    int n;
    int16_t layers[MESH_MOST_STAGES];
};

struct mesh_row {
    const char *key; /* key in --mesh dp=2,ulysses=4,ring=2 and in plan.json */
    /* order of nesting, 0: members are neighbouring places;
     * place = (((pp * dp degree + dp) * ring degree + ring) * ulysses degree + ulysses) * tp degree + tp */
    int depth;
    int divides;        /* 1: the degree makes no ranks; it has no depth */
    int optional;       /* 1: the degree is 1 unless it is given, and told only above 1 */
    const char *shards; /* plural noun for the things that members share, for messages */
};
extern const struct mesh_row mesh_rows[MESH_DIMS];

/* Returns a mesh with that degree (1 or AUTO, say) along every dimension. */
struct mesh mesh_uniform(int degree);
/* Returns a dimension's degree; one that is undecided counts as 1. */
int mesh_degree(const struct mesh *m, enum mesh_dim d);
/* Returns the number of ranks: the product of the degrees that make ranks; undecided ones count as 1. */
int64_t mesh_ranks(const struct mesh *m);
/* Groups of a comm lane. along: dimensions along which they extend, a bit for each, adjacent in the order of nesting, so that the
 * places of a group's members are equally far apart. beside: dimensions of which one must be above 1, else the lane is idle, since
 * another lane has these groups; 0: none must be. every: dimensions that must all be above 1, for the same reason.
 *
 * Lanes of experts have no dimensions: groups of ep are consecutive places, and those with the same experts stand that far apart. */
struct mesh_lane {
    unsigned along, beside, every;
};
extern const struct mesh_lane mesh_lanes[LANES];
/* Returns the number of members of every group of a comm lane. */
int mesh_members(const struct mesh *m, enum lane lane);
/* The group of a comm lane to which the rank at a place belongs. members: their number; member: the rank's index among them;
 * first: the first member's place; stride: places from member to member. */
struct mesh_group {
    int members, member, first, stride;
};
struct mesh_group mesh_group_of(const struct mesh *m, enum lane lane, int place);
/* Returns the number of ranks that have tokens of one sequence. */
int mesh_sharing(const struct mesh *m);
/* Returns the lane whose members have the same elements of a layer: of parameters that slices divide, or of those that all slices
 * have. Units of no layer are shared by all ranks. */
enum lane mesh_lane_of_sliced(const struct mesh *m);
enum lane mesh_lane_of_stage(const struct mesh *m);
/* Returns the lane whose members have tokens of one sequence, without slices of layers. */
enum lane mesh_lane_of_sequence(const struct mesh *m);
/* Tells whether a degree is worth telling: optional ones only above 1. */
int mesh_tells(const struct mesh *m, enum mesh_dim d);
/* Tells whether every degree that is not optional is given. */
int mesh_is_decided(const struct mesh *m);
int mesh_equal(const struct mesh *a, const struct mesh *b);
/* Lists the keys in order, NULL-terminated. */
void mesh_keys(const char *out[MESH_DIMS + 1]);
/* Formats a mesh as "dp=2,ulysses=4,ring=1" (",tp=2") into buf; returns buf. */
enum { MESH_TEXT = 96 };
const char *mesh_format(const struct mesh *m, char buf[MESH_TEXT]);
/* Formats layers of stages as "10,10,6,6", "" if they are divided evenly, into buf; returns buf. */
enum { MESH_STAGES_TEXT = 6 * MESH_MOST_STAGES + 1 };
const char *mesh_stages_format(const struct mesh_stages *s, char buf[MESH_STAGES_TEXT]);

#endif
