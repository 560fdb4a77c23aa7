/* Which bytes of a collective go where, whoever carries them. Private to src/comm. */
#ifndef LTRAIN_COMM_FLOWS_H
#define LTRAIN_COMM_FLOWS_H

#include "base/num.h"
#include "program/op.h"

#include <stddef.h>

#define CHUNK_BYTES                                                                                             \
    ((int64_t)16 << 20) /* larger ones were 3 to 6 times slower with Open MPI 4.1: page faults of its allocator \
                         */

struct collective {
    enum op_kind op;
    const struct op_attrs *attrs;
    void *const *arg;
    int members, me;
    int send, receive; /* the halves of OP_EXCHANGE that take place; ignored by the others */
};

struct flow_part {
    char *at;
    int64_t bytes;
};

/* Elements of member m's share that there are. */
int64_t flows_share(const struct op_attrs *a, int m);
int flows_is_reduction(enum op_kind op);
/* Of a collective that is no reduction: what goes to and what comes from member m (not the own one), and what stays here: *to
 * becomes a copy of the part. */
struct flow_part flows_out(const struct collective *c, int m);
struct flow_part flows_in(const struct collective *c, int m);
struct flow_part flows_own(const struct collective *c, char **to);
/* The second half of an all-reduce: the sums of each share go to all. */
void flows_gather_sums(const struct collective *c, struct op_attrs *attrs, void *arg[2], struct collective *out);

/* Of a reduction: bytes of an element that travels; elements of a piece, several of which a share may have. */
int64_t flows_wire_element(const struct op_attrs *a);
int64_t flows_piece(const struct op_attrs *a, int members, int64_t chunk);
/* Bytes that the own rank sends to member m in all. */
int64_t flows_sent(const struct collective *c, int m);

#endif
