/* The dimensions of a mesh: numbers of ranks that share sequences, heads and tokens. */
#ifndef LTRAIN_PROGRAM_MESH_H
#define LTRAIN_PROGRAM_MESH_H

#include "program/program.h"

/* Dimensions in the order in which users read and type them. */
enum mesh_dim { MESH_DP, MESH_ULYSSES, MESH_RING, MESH_EP, MESH_DIMS };

/* Ranks along each dimension; in a request AUTO (-1): the planner decides. Expert parallelism (ep) divides the ranks that the other
 * dimensions make: `ep` consecutive places share the experts of every layer out; 0 is as 1. */
struct mesh {
    int degree[MESH_DIMS];
};

struct mesh_row {
    const char *key; /* key in --mesh dp=2,ulysses=4,ring=2 and in plan.json */
    /* order of nesting, 0: members are neighbouring places; place = (dp * ring degree + ring) * ulysses degree + ulysses */
    int depth;
    int divides;        /* 1: the degree divides the ranks and makes none; it is told only above 1, and has no depth */
    const char *shards; /* plural noun for the things that members share, for messages */
};
extern const struct mesh_row mesh_rows[MESH_DIMS];

/* Returns a mesh with that degree (1 or AUTO, say) along every dimension. */
struct mesh mesh_uniform(int degree);
/* Returns a dimension's degree; one that is undecided counts as 1. */
int mesh_degree(const struct mesh *m, enum mesh_dim d);
/* Returns the number of ranks: the product of the degrees that make ranks; undecided ones count as 1. */
int64_t mesh_ranks(const struct mesh *m);
/* Dimensions along which the groups of each comm lane extend, a bit for each. A lane's dimensions are adjacent in the order of
 * nesting, so that the places of a group's members are equally far apart. Lanes of experts have none: groups of ep are consecutive
 * places, and those with the same experts stand that far apart. */
extern const unsigned mesh_lanes[LANES];
/* Returns the number of members of every group of a comm lane. */
int mesh_members(const struct mesh *m, enum lane lane);
/* The group of a comm lane to which the rank at a place belongs. members: their number; member: the rank's index among them;
 * first: the first member's place; stride: places from member to member. */
struct mesh_group {
    int members, member, first, stride;
};
struct mesh_group mesh_group_of(const struct mesh *m, enum lane lane, int place);
/* Tells whether a degree is worth telling: those that make ranks always, others above 1. */
int mesh_tells(const struct mesh *m, enum mesh_dim d);
/* Tells whether every degree that makes ranks is given. */
int mesh_is_decided(const struct mesh *m);
int mesh_equal(const struct mesh *a, const struct mesh *b);
/* Lists the keys in order, NULL-terminated. */
void mesh_keys(const char *out[MESH_DIMS + 1]);
/* Formats a mesh as "dp=2,ulysses=4,ring=1" (",ep=2") into buf; returns buf. */
enum { MESH_TEXT = 64 };
const char *mesh_format(const struct mesh *m, char buf[MESH_TEXT]);

#endif
