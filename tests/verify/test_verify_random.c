/* Compares the verifier with brute force on random programs: both give the same verdict for the program as built and after every
 * single fault.
 *
 * Brute force keeps the content of every unit of memory and compares all pairs of instructions. It orders them by reachability in
 * a graph with two events (start, retirement) for each instruction. */
#include "base/rng.h"
#include "extent.h"
#include "verify/build.h"
#include "verify/mutate.h"
#include "verify/verify.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

enum { RING = 3, UNIT = 1024, PAGE = 4096, UNITS = 32, LENGTH = 40, BUFFERS = 6 /* per tier */ };

/* --- Random numbers --- */

static uint64_t stream, drawn;

static int64_t below(int64_t n)
{
    return (int64_t)rng_below(7, stream, drawn++, (uint64_t)n);
}

/* --- Brute force: content --- */

struct unit {
    int tensor, version;       /* tensor -1: the unit holds nothing, or scratch */
    int64_t row, begin, bytes; /* row, and range of the write that made the content */
    int predicate;             /* predicate under which the content holds */
};

struct memory {
    struct unit unit[TIERS][UNITS];
};

static void memory_clear(struct memory *m)
{
    for (int t = 0; t < TIERS; t++) {
        for (int u = 0; u < UNITS; u++)
            m->unit[t][u].tensor = -1;
    }
}

static void memory_write(struct memory *m, enum tier t, int64_t begin, int64_t bytes, int tensor, int version, int64_t row0,
                         int predicate)
{
    for (int64_t at = begin; at < begin + bytes; at += UNIT)
        m->unit[t][at / UNIT] = (struct unit){tensor, version, row0 + (at - begin) / UNIT, begin, bytes, predicate};
}

static int memory_holds(const struct memory *m, enum tier t, int64_t begin, int64_t bytes, int tensor, int version, int64_t row0)
{
    for (int64_t at = begin; at < begin + bytes; at += UNIT) {
        const struct unit *u = &m->unit[t][at / UNIT];
        if (u->tensor != tensor || u->version != version || u->row != row0 + (at - begin) / UNIT)
            return 0;
        if (t == TIER_NVME && (u->begin != begin || u->bytes != bytes))
            return 0;
    }
    return 1;
}

/* Tells whether each unit of the range has the predicate `a` or `b`. */
static int memory_under(const struct memory *m, enum tier t, int64_t begin, int64_t bytes, int a, int b)
{
    for (int64_t at = begin; at < begin + bytes; at += UNIT) {
        if (m->unit[t][at / UNIT].predicate != a && m->unit[t][at / UNIT].predicate != b)
            return 0;
    }
    return 1;
}

static int64_t begin_of(const struct program *p, const struct operand *o)
{
    return p->buffers[o->buffer].address + o->offset;
}

static int overlap(const struct program *p, const struct operand *a, const struct operand *b)
{
    return p->buffers[a->buffer].tier == p->buffers[b->buffer].tier && begin_of(p, a) < begin_of(p, b) + b->bytes &&
           begin_of(p, b) < begin_of(p, a) + a->bytes;
}

static int content_is_right(const struct program *p)
{
    struct memory m;
    memory_clear(&m);
    for (int b = 0; b < p->n_live_in; b++) {
        const struct binding *x = &p->live_in[b];
        memory_write(&m, p->buffers[x->buffer].tier, p->buffers[x->buffer].address + x->offset, (x->row1 - x->row0) * UNIT,
                     x->tensor, x->version, x->row0, 0);
    }
    for (int i = 0; i < p->n_instrs; i++) {
        const struct instr *in = &p->instrs[i];
        const struct operand *o = p->operands + in->first_operand;
        int n = in->n_operands, reads_if = in->op == OP_EXCHANGE ? program_call(p, in)->attrs.comm.send_if : in->predicate;
        int writes_if = in->op == OP_EXCHANGE ? program_call(p, in)->attrs.comm.recv_if : in->predicate;
        for (int k = 0; k < n; k++) {
            if ((o[k].access & ACCESS_READ) && !memory_holds(&m, p->buffers[o[k].buffer].tier, begin_of(p, &o[k]), o[k].bytes,
                                                             o[k].tensor, o[k].version, o[k].row0))
                return 0;
            if ((o[k].access & ACCESS_READ) &&
                !memory_under(&m, p->buffers[o[k].buffer].tier, begin_of(p, &o[k]), o[k].bytes, 0, reads_if))
                return 0;
            for (int l = 0; l < k; l++) {
                if (overlap(p, &o[k], &o[l]) && ((o[k].access | o[l].access) & ACCESS_WRITE))
                    return 0; /* no other op used here may overwrite its input */
            }
        }
        /* only content that always exists may be added to content that always exists, unless the op is left out whenever the
         * added content is missing */
        if (in->op == OP_ACCUM && reads_if &&
            !memory_under(&m, p->buffers[o[0].buffer].tier, begin_of(p, &o[0]), o[0].bytes, reads_if, reads_if) &&
            !memory_under(&m, p->buffers[o[1].buffer].tier, begin_of(p, &o[1]), o[1].bytes, reads_if, reads_if))
            return 0;
        for (int k = 0; k < n; k++) {
            enum tier t = p->buffers[o[k].buffer].tier;
            int under = o[k].access == ACCESS_WRITE                                 ? writes_if
                        : memory_under(&m, t, begin_of(p, &o[k]), o[k].bytes, 0, 0) ? 0
                                                                                    : reads_if;
            if (o[k].access & ACCESS_WRITE)
                memory_write(&m, t, begin_of(p, &o[k]), o[k].bytes, o[k].tensor, operand_version_after(&o[k]), o[k].row0, under);
        }
    }
    for (int b = 0; b < p->n_live_out; b++) {
        const struct binding *x = &p->live_out[b];
        if (!memory_holds(&m, p->buffers[x->buffer].tier, p->buffers[x->buffer].address + x->offset, (x->row1 - x->row0) * UNIT,
                          x->tensor, x->version, x->row0))
            return 0;
        if (!memory_under(&m, p->buffers[x->buffer].tier, p->buffers[x->buffer].address + x->offset, (x->row1 - x->row0) * UNIT,
                          0, 0))
            return 0;
    }
    return 1;
}

/* --- Brute force: order --- */

struct order {
    uint64_t start[LENGTH], retired[LENGTH]; /* bit i: instruction i has retired before this event */
};

/* Returns the index of the lane's instruction with that ticket; -1: none. */
static int find_ticket(const struct program *p, int lane, int64_t ticket)
{
    for (int i = 0; i < p->n_instrs; i++) {
        if ((int)p->instrs[i].lane == lane && p->instrs[i].ticket == ticket)
            return i;
    }
    return -1;
}

/* Orders instruction j behind earlier events. Edges: from the retirement of awaited instructions to its start, and from its start
 * to its retirement. On a serial lane also from the predecessor's retirement to its start; on a pipelined lane from start to
 * start, and from retirement to retirement. */
static void order_instr(const struct program *p, struct order *h, int j)
{
    const struct instr *in = &p->instrs[j];
    int before = find_ticket(p, (int)in->lane, in->ticket - 1), pipelined = in->lane == LANE_READ || in->lane == LANE_WRITE;
    uint64_t after_before = before >= 0 ? h->retired[before] | (uint64_t)1 << before : 0;
    h->start[j] = before < 0 ? 0 : pipelined ? h->start[before] : after_before;
    for (int w = 0; w < in->n_waits; w++) {
        int i = find_ticket(p, program_waits(p, in)[w].lane, program_waits(p, in)[w].ticket);
        h->start[j] |= h->retired[i] | (uint64_t)1 << i;
    }
    h->retired[j] = h->start[j] | after_before;
}

static int conflict(const struct program *p, int i, int j)
{
    for (int a = 0; a < p->instrs[i].n_operands; a++) {
        for (int b = 0; b < p->instrs[j].n_operands; b++) {
            const struct operand *x = &p->operands[p->instrs[i].first_operand + a],
                                 *y = &p->operands[p->instrs[j].first_operand + b];
            if (((x->access | y->access) & ACCESS_WRITE) && overlap(p, x, y))
                return 1;
        }
    }
    return 0;
}

static int order_is_right(const struct program *p)
{
    struct order h;
    for (int j = 0; j < p->n_instrs; j++) {
        order_instr(p, &h, j);
        for (int i = 0; i < j; i++) {
            if (!(h.start[j] >> i & 1) && conflict(p, i, j))
                return 0;
        }
    }
    return 1;
}

/* --- Random programs --- */

/* Picks a buffer of the tier that contains the range (several overlap). */
static void place(const struct program *p, enum tier t, int64_t begin, int64_t bytes, int *buffer, int64_t *offset)
{
    for (;;) {
        int b = (int)(t * BUFFERS + below(BUFFERS));
        if (p->buffers[b].address <= begin && begin + bytes <= p->buffers[b].address + p->buffers[b].bytes) {
            *buffer = b;
            *offset = begin - p->buffers[b].address;
            return;
        }
    }
}

/* Finds a random run of units with consecutive rows of one tensor and version; on nvme, one whole extent. Returns 0 if none is
 * found. */
static int find_run(const struct memory *m, enum tier t, int64_t *begin, int64_t *bytes)
{
    int64_t u = below(UNITS), n = 1, most = 1 + below(8);
    const struct unit *x = &m->unit[t][u];
    if (x->tensor < 0)
        return 0;
    if (t == TIER_NVME) {
        *begin = x->begin;
        *bytes = x->bytes;
        return memory_holds(m, t, x->begin, x->bytes, x->tensor, x->version, m->unit[t][x->begin / UNIT].row);
    }
    while (n < most && u + n < UNITS && x[n].tensor == x->tensor && x[n].version == x->version && x[n].row == x->row + n &&
           x[n].predicate == x->predicate)
        n++;
    *begin = u * UNIT;
    *bytes = n * UNIT;
    return 1;
}

static void add(struct program *p, const struct memory *m, int arg, enum access access, enum tier t, int64_t begin, int64_t bytes,
                int tensor, int64_t row0)
{
    int buffer;
    int64_t offset;
    place(p, t, begin, bytes, &buffer, &offset);
    build_operand(p, arg, access, buffer, offset, tensor, access == ACCESS_WRITE ? 0 : m->unit[t][begin / UNIT].version, row0,
                  row0 + bytes / UNIT);
}

/* Finds a random place for a result that does not overlap its source. */
static int find_place(enum tier t, int64_t bytes, enum tier from, int64_t begin, int64_t *at)
{
    int64_t step = t == TIER_NVME ? PAGE : UNIT;
    *at = below(UNITS * UNIT / step) * step;
    if (*at + bytes > UNITS * UNIT)
        return 0;
    return t != from || *at + bytes <= begin || begin + bytes <= *at;
}

static const enum tier copy_from[LANE_WORLD] = {TIER_DEVICE, TIER_HOST, TIER_DEVICE, TIER_NVME, TIER_HOST, TIER_HOST};
static const enum tier copy_to[LANE_WORLD] = {TIER_DEVICE, TIER_DEVICE, TIER_HOST, TIER_HOST, TIER_NVME, TIER_HOST};

/* Sets the predicates of an exchange's halves in one of the ways that may be right; way 0: no predicates. */
static void set_exchange(struct op_attrs *a, int way)
{
    int s = (way + 1) / 2, forth = way % 2 == 0;
    a->comm.distance = way == 0 ? 1 : forth ? s : -s;
    a->comm.send_if = way;
    a->comm.recv_if = way == 0 ? 0 : forth ? 2 * s - 1 : 2 * s;
}

/* Appends a random collective whose operand is a run on the device that exists under `predicate`. */
static int random_collective(struct program *p, struct memory *m, enum lane lane, int64_t begin, int64_t bytes, int predicate)
{
    const struct unit source = m->unit[TIER_DEVICE][begin / UNIT];
    int64_t at, row0 = below(UNITS - bytes / UNIT);
    if (lane != LANE_RING) { /* a sum, in place */
        if (predicate != 0)
            return 0;
        program_add_instr(p, OP_ALL_REDUCE, lane);
        add(p, m, 0, ACCESS_UPDATE, TIER_DEVICE, begin, bytes, source.tensor, source.row);
        memory_write(m, TIER_DEVICE, begin, bytes, source.tensor, source.version + 1, source.row, 0);
    } else {
        if (!find_place(TIER_DEVICE, bytes, TIER_DEVICE, begin, &at))
            return 0;
        int tensor = program_add_tensor(p, "t", CLASS_ACT, UNITS + 1, UNIT);
        program_add_instr(p, OP_EXCHANGE, lane);
        set_exchange(&program_call(p, &p->instrs[p->n_instrs - 1])->attrs, predicate ? predicate : (int)below(2 * RING - 1));
        add(p, m, 0, ACCESS_READ, TIER_DEVICE, begin, bytes, source.tensor, source.row);
        add(p, m, 1, ACCESS_WRITE, TIER_DEVICE, at, bytes, tensor, row0);
        memory_write(m, TIER_DEVICE, at, bytes, tensor, 0, row0,
                     program_call(p, &p->instrs[p->n_instrs - 1])->attrs.comm.recv_if);
    }
    struct op_attrs *a = &program_call(p, &p->instrs[p->n_instrs - 1])->attrs;
    a->comm.element = 4;
    a->comm.n = a->comm.share = bytes / 4;
    return 1;
}

/* Appends one random instruction, if a few draws find a possible one, and applies its effect to the memory. */
static int random_instr(struct program *p, struct memory *m)
{
    enum lane lane = (enum lane)below(LANES);
    int comm = lane_is_comm(lane);
    enum tier from = comm ? TIER_DEVICE : copy_from[lane], to = comm ? TIER_DEVICE : copy_to[lane];
    int kernel = (lane == LANE_COMPUTE || lane == LANE_HOST) && below(4) != 0;
    int64_t begin, bytes, at;
    if (!p->discrete && below(3) == 0) { /* nvme and host lanes reach the device */
        if (lane == LANE_READ || lane == LANE_HOST)
            to = TIER_DEVICE;
        if (lane == LANE_WRITE || lane == LANE_HOST)
            from = TIER_DEVICE;
    }
    if (!find_run(m, from, &begin, &bytes) || !find_place(to, bytes, from, begin, &at))
        return 0;
    const struct unit source = m->unit[from][begin / UNIT];
    if (comm)
        return random_collective(p, m, lane, begin, bytes, source.predicate);
    if (kernel && (source.predicate || below(2))) { /* target += source */
        struct unit *target = &m->unit[to][at / UNIT];
        int64_t row0 = target->row;
        int version = target->version + 1, tensor = target->tensor,
            predicate = source.predicate ? source.predicate : target->predicate;
        if (tensor < 0 || !memory_holds(m, to, at, bytes, tensor, target->version, row0))
            return 0;
        if (!memory_under(m, to, at, bytes, target->predicate, target->predicate) ||
            (target->predicate && target->predicate != predicate))
            return 0;
        program_add_instr(p, OP_ACCUM, lane);
        p->instrs[p->n_instrs - 1].predicate = (int16_t)predicate;
        add(p, m, 0, ACCESS_UPDATE, to, at, bytes, tensor, row0);
        add(p, m, 1, ACCESS_READ, from, begin, bytes, source.tensor, source.row);
        memory_write(m, to, at, bytes, tensor, version, row0, target->predicate);
        return 1;
    }
    if (source.predicate != 0)
        return 0;
    int tensor = source.tensor, version = source.version;
    int64_t row0 = source.row;
    if (kernel) {
        tensor = program_add_tensor(p, "t", CLASS_ACT, UNITS + 1, UNIT);
        version = 0;
        row0 = below(UNITS - bytes / UNIT);
    }
    program_add_instr(p, kernel ? OP_GELU : OP_COPY, lane);
    add(p, m, kernel ? 1 : 0, ACCESS_READ, from, begin, bytes, source.tensor, source.row);
    add(p, m, kernel ? 0 : 1, ACCESS_WRITE, to, at, bytes, tensor, row0);
    p->operands[p->n_operands - 1].version = version;
    memory_write(m, to, at, bytes, tensor, version, row0, 0);
    return 1;
}

static void wait_for(struct program *p, int j, int i)
{
    const struct instr *in = &p->instrs[j], *other = &p->instrs[i];
    for (int w = 0; w < in->n_waits; w++) {
        struct wait *wait = &program_waits(p, in)[w];
        if (wait->lane == other->lane) {
            wait->ticket = (int32_t)max_i64(wait->ticket, other->ticket);
            return;
        }
    }
    program_add_wait(p, j, (struct wait){other->lane, other->ticket});
}

/* Adds waits for every conflict that is not ordered yet, beginning with the latest. Half of the programs begin with random waits,
 * so that some waits are redundant. */
static void add_waits(struct program *p)
{
    struct order h;
    int careless = (int)below(2);
    for (int j = 0; j < p->n_instrs; j++) {
        if (careless && j > 0 && below(3) == 0)
            wait_for(p, j, (int)below(j));
        order_instr(p, &h, j);
        for (int i = j - 1; i >= 0; i--) {
            if ((h.start[j] >> i & 1) || !conflict(p, i, j))
                continue;
            wait_for(p, j, i);
            order_instr(p, &h, j);
        }
    }
}

static struct program *random_program(void)
{
    struct program *p = build_begin("random", UNITS * UNIT, UNITS * UNIT, UNITS * UNIT);
    struct memory m;
    memory_clear(&m);
    for (int l = LANE_WORLD; l < LANES; l++)
        p->group_size[l] = l == LANE_RING ? RING : 2;
    p->discrete = (int)below(2);
    for (int t = 0; t < TIERS; t++) {
        build_buffer(p, (enum tier)t, 0, UNITS * UNIT, 1);
        for (int b = 1; b < BUFFERS; b++) {
            int64_t page = below(UNITS / 4);
            build_buffer(p, (enum tier)t, page * PAGE, (1 + below(UNITS / 4 - page)) * PAGE, 0);
        }
        for (int64_t at = below(2) * PAGE, rows; at + 8 * UNIT <= UNITS * UNIT && below(5);
             at += round_up(rows * UNIT, t == TIER_NVME ? PAGE : UNIT)) {
            int tensor = program_add_tensor(p, "in", CLASS_ACT, UNITS + 1, UNIT);
            rows = 1 + below(8);
            build_bind(p, 0, t * BUFFERS, at, tensor, 0, 2, 2 + rows);
            memory_write(&m, (enum tier)t, at, rows * UNIT, tensor, 0, 2, 0);
        }
    }
    for (int tries = 0; tries < 4000 && p->n_instrs < LENGTH; tries++)
        random_instr(p, &m);
    for (int i = 0; i < 6; i++) {
        enum tier t = (enum tier)below(TIERS);
        int64_t begin, bytes;
        if (find_run(&m, t, &begin, &bytes) && m.unit[t][begin / UNIT].predicate == 0) {
            const struct unit *u = &m.unit[t][begin / UNIT];
            build_bind(p, 1, t * BUFFERS, begin, u->tensor, u->version, u->row, u->row + bytes / UNIT);
        }
    }
    program_number(p);
    add_waits(p);
    return p;
}

/* --- Comparison --- */

struct tally {
    int accepted, rejected;
};

static void compare(const struct program *p, int content, struct tally *tally)
{
    int right = content && order_is_right(p);
    enum status st = program_verify(p);
    if (right != (st == OK)) {
        program_print(p, stderr);
        fail_msg("stream %llu: brute force says %s, the verifier %s", (unsigned long long)stream, right ? "right" : "wrong",
                 st == OK ? "right" : status_message());
    }
    (*(right ? &tally->accepted : &tally->rejected))++;
}

/* Deletes each wait, and weakens each wait by one ticket, one at a time. */
static void fault_waits(const struct program *p, struct program *q, struct tally *tally)
{
    for (int i = 0; i < p->n_instrs; i++) {
        struct instr *in = &q->instrs[i];
        for (int w = 0; w < p->instrs[i].n_waits; w++) {
            struct wait *wait = &program_waits(q, in)[w], was = *wait;
            *wait = program_waits(q, in)[--in->n_waits];
            compare(q, 1, tally);
            *in = p->instrs[i];
            wait->ticket = was.ticket - 1;
            wait->lane = was.lane;
            if (wait->ticket > 0)
                compare(q, 1, tally);
            *wait = was;
        }
    }
}

/* Changes one operand at a time to something else of the right form: another version, rows or place. A change of place may also
 * change the order. */
static void fault_operands(const struct program *p, struct program *q, struct tally *tally)
{
    for (int i = 0; i < p->n_instrs; i++) {
        for (int k = p->instrs[i].first_operand; k < p->instrs[i].first_operand + p->instrs[i].n_operands; k++) {
            struct operand *o = &q->operands[k];
            int64_t step = p->buffers[o->buffer].tier == TIER_NVME ? PAGE : UNIT, sign = below(2) ? 1 : -1;
            int kernel = p->instrs[i].op != OP_COPY;
            switch (below(kernel ? 3 : 1)) {
            case 0:
                if (o->offset + sign * step >= 0 && o->offset + sign * step + o->bytes <= p->buffers[o->buffer].bytes)
                    o->offset += sign * step;
                break;
            case 1:
                o->version += (int32_t)sign;
                break;
            case 2:
                if (o->row0 + sign >= 0 && operand_row1(q, o) + sign <= UNITS + 1) {
                    o->row0 += sign;
                }
                break;
            }
            compare(q, content_is_right(q), tally);
            *o = p->operands[k];
        }
    }
    for (int b = 0; b < p->n_live_out; b++) {
        q->live_out[b].version++;
        compare(q, content_is_right(q), tally);
        q->live_out[b] = p->live_out[b];
    }
}

/* Tries every other predicate in place of each right one, and every other way for an exchange. */
static void fault_predicates(const struct program *p, struct program *q, struct tally *tally)
{
    for (int i = 0; i < p->n_instrs; i++) {
        for (int way = 0; way <= 2 * (RING - 1); way++) {
            if (p->instrs[i].op == OP_ACCUM)
                q->instrs[i].predicate = (int16_t)way;
            else if (p->instrs[i].op == OP_EXCHANGE)
                set_exchange(mutate_attrs(q, &q->instrs[i]), way);
            else
                break;
            compare(q, content_is_right(q), tally);
        }
        q->instrs[i] = p->instrs[i];
    }
}

static void test_random(void **state)
{
    (void)state;
    struct tally built = {0}, waits = {0}, operands = {0}, predicates = {0};
    const int programs = extent(150, 500, 2000);
    int instrs = 0;
    for (stream = 0; stream < (uint64_t)programs; stream++) {
        drawn = 0;
        struct program *p = random_program(), *q = mutate_copy(p);
        assert_non_null(q);
        assert_true(content_is_right(p));
        instrs += p->n_instrs;
        compare(p, 1, &built);
        fault_waits(p, q, &waits);
        fault_operands(p, q, &operands);
        fault_predicates(p, q, &predicates);
        program_destroy(p);
        program_destroy(q);
    }
    print_message(
        "%d instructions; built: %d accepted, %d rejected; waits deleted or weakened: %d, %d; operands changed: %d, %d; predicates changed: %d, %d\n",
        instrs, built.accepted, built.rejected, waits.accepted, waits.rejected, operands.accepted, operands.rejected,
        predicates.accepted, predicates.rejected);
    assert_int_equal(built.accepted, programs);
    assert_true(waits.accepted > 100 && waits.rejected > 1000);
    assert_true(operands.accepted > 100 && operands.rejected > 1000);
    assert_true(predicates.accepted > 1000 && predicates.rejected > 1000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_random),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
