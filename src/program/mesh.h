/* The dimensions of a mesh: numbers of ranks that share sequences, heads and tokens. */
#ifndef LTRAIN_PROGRAM_MESH_H
#define LTRAIN_PROGRAM_MESH_H

#include "program/program.h"

/* In the order in which people read and type them. */
enum mesh_dim { MESH_DP, MESH_ULYSSES, MESH_RING, MESH_DIMS };

/* Ranks along each dimension; in a request AUTO (-1): the planner decides. */
struct mesh {
    int degree[MESH_DIMS];
};

struct mesh_row {
    const char *key;    /* key in --mesh dp=2,ulysses=4,ring=2 and in plan.json */
    int depth;          /* order of nesting; 0: members are neighbours; place = (dp * rings + ring) * ulysses degree + ulysses */
    const char *shards; /* things that its members share, for people */
};
extern const struct mesh_row mesh_rows[MESH_DIMS];

/* Returns the product of the degrees; undecided ones count as 1. */
int64_t mesh_ranks(const struct mesh *m);
/* Dimensions along which the groups of each comm lane extend, a bit for each. They are neighbours in the order of nesting, so
 * that a group's places are equally far apart. */
extern const unsigned mesh_lanes[LANES];
/* Returns the number of members of every group of a comm lane. */
int mesh_members(const struct mesh *m, enum lane lane);
/* The group of a comm lane that the rank at a place belongs to: its number of members, the rank's index among them, the place of
 * the first one, and the places between members. */
struct mesh_group {
    int members, member, first, stride;
};
struct mesh_group mesh_group_of(const struct mesh *m, enum lane lane, int place);
/* Tells whether every degree is given. */
int mesh_is_decided(const struct mesh *m);
int mesh_equal(const struct mesh *a, const struct mesh *b);
/* Lists the keys in order, NULL-terminated. */
void mesh_keys(const char *out[MESH_DIMS + 1]);
/* Formats a mesh as "dp=2,ulysses=4,ring=1" into buf; returns buf. */
enum { MESH_TEXT = 64 };
const char *mesh_format(const struct mesh *m, char buf[MESH_TEXT]);

#endif
