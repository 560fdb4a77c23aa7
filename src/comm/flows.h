/* The bytes of a collective by destination, whoever carries them. Private to src/comm. */
#ifndef LTRAIN_COMM_FLOWS_H
#define LTRAIN_COMM_FLOWS_H

#include "base/num.h"
#include "base/status.h"
#include "program/op.h"

#include <stddef.h>

#define CHUNK_BYTES \
    ((int64_t)16 << 20) /* larger ones were 3 to 6 times slower with Open MPI 4.1: page faults of its allocator \
                         */

struct collective {
    enum op_kind op;
    const struct op_attrs *attrs;
    void *const *arg;
    int members, me;
    int send, receive; /* halves of OP_EXCHANGE and OP_SHIFT that take place; other ops ignore them */
};

struct flow_part {
    char *at;
    int64_t bytes;
};

/* Returns the number of elements in member m's share; the last shares may be short or empty. */
int64_t flows_share(const struct op_attrs *a, int m);
int flows_is_reduction(enum op_kind op);
/* Refuses the counts of an op whose messages' sizes are numbers of its arguments (OP_DISPATCH). */
enum status flows_check(const struct collective *c);
/* Returns the part for (flows_in: from) member m, for a collective that is no reduction; m is not this rank. */
struct flow_part flows_out(const struct collective *c, int m);
struct flow_part flows_in(const struct collective *c, int m);
struct flow_part flows_own(const struct collective *c, char **to);
/* Makes the second half of an all-reduce: a gather of each share's sums. */
void flows_gather_sums(const struct collective *c, struct op_attrs *attrs, void *arg[2], struct collective *out);

/* Returns the bytes of a reduction's element that travels; flows_piece: the elements of a piece, of which a share may have
 * several. */
int64_t flows_wire_element(const struct op_attrs *a);
int64_t flows_piece(const struct op_attrs *a, int members, int64_t chunk);
/* Returns all bytes that this rank sends to member m. */
int64_t flows_sent(const struct collective *c, int m);

#endif
