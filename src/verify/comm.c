/* Checks of the form of collectives and predicates.
 *
 * An op that is left out leaves its outputs undefined, and arguments that it would update unchanged. Leaving out an update is
 * right if it would have added nothing. So the added part must have been made under the same predicate (verify.c follows this
 * through memory). */
#include "verify/comm.h"

int verify_read_predicate(const struct program *p, const struct instr *in)
{
    return in->op == OP_EXCHANGE ? program_call(p, in)->attrs.comm.send_if : in->predicate;
}

int verify_write_predicate(const struct program *p, const struct instr *in)
{
    return in->op == OP_EXCHANGE ? program_call(p, in)->attrs.comm.recv_if : in->predicate;
}

/* Returns the number of predicates: on several ranks two for each mask and each ring step but the first; on one rank the
 * program's own number. */
static int predicates_of(const struct program *p)
{
    return p->group_size[LANE_RING] > 1 ? 2 * (p->group_size[LANE_RING] - 1) * (p->masks > 1 ? p->masks : 1) : p->predicates;
}

/* Checks that a stage sends its outputs to the next one and gradients to the one before, under the predicates of these. */
static const char *shift_fault(const struct program *p, const struct instr *in, char *text, size_t size)
{
    const struct op_attrs *a = &program_call(p, in)->attrs;
    const int first = program_stage_predicate(p->group_size[LANE_RING], p->masks, a->comm.distance < 0);
    if (in->lane != LANE_PP || (a->comm.distance != 1 && a->comm.distance != -1))
        return "a shift goes from stage to stage: by 1 or -1, on the pp lane";
    if (a->comm.send_if == first && a->comm.recv_if == first + 1)
        return NULL;
    snprintf(text, size, "it sends under predicate %d by %d and receives under %d, where stages have %d and %d", a->comm.send_if,
             a->comm.distance, a->comm.recv_if, first, first + 1);
    return text;
}

static int64_t argument_bytes(const struct program *p, const struct instr *in, int arg)
{
    int64_t bytes = 0;
    for (int k = in->first_operand; k < in->first_operand + in->n_operands; k++)
        bytes += p->operands[k].arg == arg ? p->operands[k].bytes : 0;
    return bytes;
}

/* Checks that data is sent under the same predicate under which the receiver expects it. Bit 2s - 1 says that this rank attends
 * the block of member me - s, bit 2s that member me + s attends this rank's block: the same question, asked at both ends of a
 * transfer over distance s. */
static const char *halves_fault(const struct program *p, const struct instr *in, char *text, size_t size)
{
    int64_t P = p->group_size[in->lane], s = verify_modulo(program_call(p, in)->attrs.comm.distance, P);
    int32_t send = program_call(p, in)->attrs.comm.send_if, receive = program_call(p, in)->attrs.comm.recv_if;
    /* number of the attention mask to which the predicates send and receive belong */
    int mask = in->lane == LANE_RING && send > 0 && P > 1 ? (send - 1) / (int)(2 * P - 2) : 0;
    if (mask < (p->masks > 1 ? p->masks : 1)) {
        send -= mask * (int32_t)(2 * P - 2);
        receive -= mask * (int32_t)(2 * P - 2);
    }
    int forth = send == 2 * s && receive == 2 * s - 1, back = send == 2 * (P - s) - 1 && receive == 2 * (P - s);
    if ((send == 0 && receive == 0) || (in->lane == LANE_RING && (forth || back)))
        return NULL;
    snprintf(text, size, "it sends under predicate %d over a distance of %d and receives under %d: the other end has another one",
             send, program_call(p, in)->attrs.comm.distance, receive);
    return text;
}

/* Checks an op whose messages' sizes are known at run time only: its rows, and the counts by which they travel. */
static const char *rows_fault(const struct program *p, const struct instr *in, char *text, size_t size)
{
    const struct op_attrs *a = &program_call(p, in)->attrs;
    const int64_t P = p->group_size[in->lane], there = in->op == OP_DISPATCH ? 1 : 0, experts = a->comm.type,
                  pairs = argument_bytes(p, in, (int)(1 - there)), arrive = argument_bytes(p, in, (int)there),
                  counts = argument_bytes(p, in, 2);
    if (in->lane != LANE_EP)
        return "rows of experts travel on the ep lane only";
    if (a->comm.n < 1 || a->comm.share < 1 || a->comm.element < 1 || a->comm.n > INT32_MAX || a->comm.share > INT32_MAX ||
        experts < 1 || experts % P != 0) {
        snprintf(text, size, "%lld rows of pairs with %lld experts, and room for %lld, cannot be sent", (long long)a->comm.share,
                 (long long)experts, (long long)a->comm.n);
        return text;
    }
    if (pairs != a->comm.share * a->comm.element || arrive != a->comm.n * a->comm.element ||
        counts != P * (experts + 1) * dtype_size(I32)) {
        snprintf(text, size, "its arguments have %lld, %lld and %lld bytes, but it says %lld and %lld rows and %lld experts",
                 (long long)pairs, (long long)arrive, (long long)counts, (long long)a->comm.share, (long long)a->comm.n,
                 (long long)experts);
        return text;
    }
    return NULL;
}

static const char *sizes_fault(const struct program *p, const struct instr *in, char *text, size_t size)
{
    int64_t P = p->group_size[in->lane], n = program_call(p, in)->attrs.comm.n, share = program_call(p, in)->attrs.comm.share,
            element = program_call(p, in)->attrs.comm.element;
    int reduces = in->op == OP_REDUCE_SCATTER || in->op == OP_ALL_REDUCE;
    const int whole = in->op == OP_EXCHANGE || in->op == OP_SHIFT; /* no member has a share */
    int64_t want[2] = {n, n};                                      /* elements of the two arguments */
    if (in->op == OP_ALL_GATHER || in->op == OP_COLLECT)
        want[0] = share;
    if (in->op == OP_REDUCE_SCATTER || in->op == OP_DEAL)
        want[1] = share;
    if (in->op == OP_ALL_REDUCE)
        want[1] = 0; /* scratch */
    if (n < 1 || element < 1 || n > INT64_MAX / element) {
        snprintf(text, size, "%lld elements of %lld bytes", (long long)n, (long long)element);
        return text;
    }
    if (!whole && (share < 1 || share > n || share > INT64_MAX / element / P || share * P < n ||
                   (in->op == OP_ALL_TO_ALL && share * P != n))) {
        snprintf(text, size, "%lld members' shares of %lld elements do not make %lld", (long long)P, (long long)share,
                 (long long)n);
        return text;
    }
    if (reduces &&
        (element != 4 || (program_call(p, in)->attrs.comm.type != F32 && program_call(p, in)->attrs.comm.type != BF16))) {
        snprintf(text, size, "sums are of fp32 elements, sent as fp32 or bf16");
        return text;
    }
    for (int arg = 0; arg < 2; arg++) {
        int64_t bytes = argument_bytes(p, in, arg);
        if (want[arg] > 0 && bytes != want[arg] * element) {
            snprintf(text, size, "argument %d has %lld bytes, but %lld elements of %lld", arg, (long long)bytes,
                     (long long)want[arg], (long long)element);
            return text;
        }
    }
    return NULL;
}

static const char *collective_fault(const struct program *p, const struct instr *in, char *text, size_t size)
{
    int P = p->group_size[in->lane], distance = program_call(p, in)->attrs.comm.distance, exchange = in->op == OP_EXCHANGE,
        root = program_call(p, in)->attrs.comm.root;
    if (P < 2)
        return "its lane's group has a single member";
    if (in->predicate != 0)
        return "a collective is executed by all or none: only the halves of an exchange have predicates, and those of their own";
    if (root != 0 && (root < 0 || root >= P || (in->op != OP_DEAL && in->op != OP_COLLECT)))
        return "only members that deal or collect are roots, and such members exist";
    if (!exchange && in->op != OP_SHIFT &&
        (distance != 0 || program_call(p, in)->attrs.comm.send_if != 0 || program_call(p, in)->attrs.comm.recv_if != 0))
        return "only exchanges have a distance and predicates for their halves";
    if (exchange && (distance <= -P || distance >= P || distance == 0)) {
        snprintf(text, size, "there is no other member at a distance of %d in a group of %d", distance, P);
        return text;
    }
    if (op_is_counted(in->op))
        return rows_fault(p, in, text, size);
    const char *fault = sizes_fault(p, in, text, size);
    if (!fault && in->op == OP_SHIFT)
        return shift_fault(p, in, text, size);
    return fault || !exchange ? fault : halves_fault(p, in, text, size);
}

const char *verify_comm_fault(const struct program *p, const struct instr *in, char *text, size_t size)
{
    if (op_class(in->op) == OPS_COLLECTIVE)
        return collective_fault(p, in, text, size);
    if (in->predicate < 0 || in->predicate > predicates_of(p)) {
        snprintf(text, size, "predicate %d does not exist: the ring has %d members, and so %d predicates", in->predicate,
                 p->group_size[LANE_RING] > 1 ? p->group_size[LANE_RING] : 1, predicates_of(p));
        return text;
    }
    return in->predicate == 0 || op_may_be_omitted(in->op) ? NULL : "it has a predicate, but is not an op that may be left out";
}
