/* The parts of collectives, in bytes. */
#include "comm/flows.h"

#include "comm/comm.h"
#include "ops/dispatch.h"

/* Most elements of the members' pieces together: 16 MiB in fp32, enough for messages that fill a link. */
#define WORK_ELEMENTS ((int64_t)4 << 20)
#define PIECE_MIN ((int64_t)16 << 10)

int flows_is_reduction(enum op_kind op)
{
    return op == OP_REDUCE_SCATTER || op == OP_ALL_REDUCE;
}

int64_t flows_share(const struct op_attrs *a, int m)
{
    return max_i64(0, min_i64(a->comm.share, a->comm.n - m * a->comm.share));
}

int64_t flows_wire_element(const struct op_attrs *a)
{
    return a->comm.type == BF16 ? 2 : 4;
}

/* Returns the elements of a piece: half of a share, so that a share makes two messages, within the limits. A small share is one
 * piece. */
int64_t flows_piece(const struct op_attrs *a, int members, int64_t chunk)
{
    int64_t limit = min_i64(max_i64(WORK_ELEMENTS / members, PIECE_MIN), max_i64(chunk / 4, 1)), share = a->comm.share;
    return max_i64(1, min_i64(limit, share > PIECE_MIN ? ceil_div(share, 2) : share));
}

int64_t comm_workspace_bytes(enum op_kind op, const struct op_attrs *a, int members)
{
    if (!flows_is_reduction(op) || members < 2)
        return 0;
    return 2 * members * flows_piece(a, members, CHUNK_BYTES) * 4; /* bf16: half for arriving pieces, half for leaving ones */
}

static int modulo(int x, int p)
{
    return (x % p + p) % p;
}

static int64_t block_bytes(const struct op_attrs *a)
{
    return a->comm.share * a->comm.element;
}

static struct dispatch_shape dispatch_of(const struct collective *c)
{
    return (struct dispatch_shape){c->attrs->comm.n, c->attrs->comm.type, c->members};
}

enum status flows_check(const struct collective *c)
{
    const struct dispatch_shape s = dispatch_of(c);
    return op_is_counted(c->op) ? dispatch_check(&s, c->arg[2], c->me) : OK;
}

/* Finds the rows of pairs that are this rank's and member m's experts', among those sorted here. */
static struct flow_part pairs_with(const struct collective *c, char *rows, int m)
{
    const struct dispatch_shape s = dispatch_of(c);
    int64_t first, n = dispatch_part(&s, (const int32_t *)c->arg[2] + c->me * (s.experts + 1), m, &first);
    return (struct flow_part){rows + first * c->attrs->comm.element, n * c->attrs->comm.element};
}

/* Finds the rows of member m's pairs with this rank's experts, among those that arrive. */
static struct flow_part arrived_from(const struct collective *c, char *rows, int m)
{
    const struct dispatch_shape s = dispatch_of(c);
    const int32_t *all = c->arg[2];
    int64_t before = 0, first, n = 0;
    for (int k = 0; k <= m; k++) {
        before += n;
        n = dispatch_part(&s, all + k * (s.experts + 1), c->me, &first);
    }
    return (struct flow_part){rows + before * c->attrs->comm.element, n * c->attrs->comm.element};
}

struct flow_part flows_out(const struct collective *c, int m)
{
    const struct op_attrs *a = c->attrs;
    char *src = c->arg[0];
    switch (c->op) {
    case OP_ALL_GATHER:
        return (struct flow_part){src, flows_share(a, c->me) * a->comm.element};
    case OP_ALL_TO_ALL:
        return (struct flow_part){src + m * block_bytes(a), block_bytes(a)};
    case OP_EXCHANGE:
        if (c->send && m == modulo(c->me + a->comm.distance, c->members))
            return (struct flow_part){src, a->comm.n * a->comm.element};
        return (struct flow_part){src, 0};
    case OP_SHIFT:
        return (struct flow_part){src, c->send && m == c->me + a->comm.distance ? a->comm.n * a->comm.element : 0};
    case OP_DEAL:
        return (struct flow_part){src + m * block_bytes(a), c->me == a->comm.root ? flows_share(a, m) * a->comm.element : 0};
    case OP_COLLECT:
        return (struct flow_part){src, m == a->comm.root ? flows_share(a, c->me) * a->comm.element : 0};
    case OP_DISPATCH:
        return pairs_with(c, src, m);
    case OP_RETURN:
        return arrived_from(c, src, m);
    default:
        return (struct flow_part){NULL, 0};
    }
}

struct flow_part flows_in(const struct collective *c, int m)
{
    const struct op_attrs *a = c->attrs;
    char *dst = c->arg[1];
    switch (c->op) {
    case OP_ALL_GATHER:
        return (struct flow_part){dst + m * block_bytes(a), flows_share(a, m) * a->comm.element};
    case OP_ALL_TO_ALL:
        return (struct flow_part){dst + m * block_bytes(a), block_bytes(a)};
    case OP_EXCHANGE:
        if (c->receive && m == modulo(c->me - a->comm.distance, c->members))
            return (struct flow_part){dst, a->comm.n * a->comm.element};
        return (struct flow_part){dst, 0};
    case OP_SHIFT:
        return (struct flow_part){dst, c->receive && m == c->me - a->comm.distance ? a->comm.n * a->comm.element : 0};
    case OP_DEAL:
        return (struct flow_part){dst, m == a->comm.root ? flows_share(a, c->me) * a->comm.element : 0};
    case OP_COLLECT:
        return (struct flow_part){dst + m * block_bytes(a), c->me == a->comm.root ? flows_share(a, m) * a->comm.element : 0};
    case OP_DISPATCH:
        return arrived_from(c, dst, m);
    case OP_RETURN:
        return pairs_with(c, dst, m);
    default:
        return (struct flow_part){NULL, 0};
    }
}

struct flow_part flows_own(const struct collective *c, char **to)
{
    struct flow_part own = {NULL, 0};
    if (c->op == OP_EXCHANGE) {
        if (c->send && c->receive && modulo(c->attrs->comm.distance, c->members) == 0)
            own = (struct flow_part){c->arg[0], c->attrs->comm.n * c->attrs->comm.element};
        *to = c->arg[1];
    } else {
        own = flows_out(c, c->me);
        *to = flows_in(c, c->me).at;
    }
    if (*to == own.at)
        own.bytes = 0;
    return own;
}

void flows_gather_sums(const struct collective *c, struct op_attrs *attrs, void *arg[2], struct collective *out)
{
    float *x = c->arg[0];
    *attrs = *c->attrs;
    attrs->comm.element = 4;
    arg[0] = x + c->me * attrs->comm.share;
    arg[1] = x;
    *out = (struct collective){.op = OP_ALL_GATHER, .attrs = attrs, .arg = arg, .members = c->members, .me = c->me};
}

int64_t flows_sent(const struct collective *c, int m)
{
    const struct op_attrs *a = c->attrs;
    if (c->op == OP_ALL_TO_ALL)
        return block_bytes(a);
    if (!flows_is_reduction(c->op))
        return flows_out(c, m).bytes;
    int64_t sums = c->op == OP_ALL_REDUCE ? flows_share(a, c->me) * 4 : 0;
    return flows_share(a, m) * flows_wire_element(a) + sums;
}
