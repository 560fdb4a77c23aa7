/* Tests the verifier on small programs written by hand: they are accepted as they are, and rejected with the right message after
 * each planted fault. */
#include "base/sys.h"
#include "verify/build.h"
#include "verify/mutate.h"
#include "verify/value_numbers.h"
#include "verify/verify.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#define ROW 1024
#define PAGE 4096

static void expect_accepted(const struct program *p)
{
    if (program_verify(p) != OK)
        fail_msg("rejected: %s", status_message());
}

static void expect_rejected(const struct program *p, const char *sentence)
{
    enum status st = program_verify(p);
    if (st != ERR_CORRUPT)
        fail_msg("status %d, expected a rejection with \"%s\"", (int)st, sentence);
    if (!strstr(status_message(), sentence))
        fail_msg("rejected with \"%s\", expected \"%s\"", status_message(), sentence);
}

static struct operand *operand_at(struct program *p, int instr, int k)
{
    return &p->operands[p->instrs[instr].first_operand + k];
}

static void drop_wait(struct program *p, int instr, int w)
{
    struct instr *in = &p->instrs[instr];
    assert_true(w < in->n_waits);
    in->n_waits--;
    for (; w < in->n_waits; w++)
        program_waits(p, in)[w] = program_waits(p, in)[w + 1];
}

/* --- A chain on the compute lane --- */

enum { X, W, Y, Z };

/* Makes the program 0: y = x w, with scratch; 1: y += z; 2: z = gelu(y). All on the device; w and z persist. */
static struct program *chain(void)
{
    struct program *p = build_begin("chain", 8 * PAGE, 0, 0);
    program_add_tensor(p, "x", CLASS_ACT, 8, ROW);
    program_add_tensor(p, "w", CLASS_PARAM, 4, ROW);
    program_add_tensor(p, "y", CLASS_ACT, 8, ROW);
    program_add_tensor(p, "z", CLASS_ACT, 8, ROW);
    int bx = build_buffer(p, TIER_DEVICE, 0, 2 * PAGE, 1), bw = build_buffer(p, TIER_DEVICE, 2 * PAGE, PAGE, 1);
    int bz = build_buffer(p, TIER_DEVICE, 3 * PAGE, 2 * PAGE, 1), by = build_buffer(p, TIER_DEVICE, 5 * PAGE, 2 * PAGE, 0);
    int work = build_buffer(p, TIER_DEVICE, 7 * PAGE, PAGE, 0);
    build_bind(p, 0, bx, 0, X, 0, 0, 8);
    build_bind(p, 0, bw, 0, W, 0, 0, 4);
    build_bind(p, 0, bz, 0, Z, 0, 0, 8);

    program_add_instr(p, OP_GEMM, LANE_COMPUTE);
    build_operand(p, 0, ACCESS_WRITE, by, 0, Y, 0, 0, 8);
    build_operand(p, 1, ACCESS_READ, bx, 0, X, 0, 0, 8);
    build_operand(p, 2, ACCESS_READ, bw, 0, W, 0, 0, 4);
    build_operand(p, 3, ACCESS_WRITE, work, 0, -1, 0, 0, 100);
    program_add_instr(p, OP_ACCUM, LANE_COMPUTE);
    build_operand(p, 0, ACCESS_UPDATE, by, 0, Y, 0, 0, 8);
    build_operand(p, 1, ACCESS_READ, bz, 0, Z, 0, 0, 8);
    program_add_instr(p, OP_GELU, LANE_COMPUTE);
    build_operand(p, 0, ACCESS_WRITE, bz, 0, Z, 1, 0, 8);
    build_operand(p, 1, ACCESS_READ, by, 0, Y, 1, 0, 8);

    build_bind(p, 1, bw, 0, W, 0, 0, 4);
    build_bind(p, 1, bz, PAGE, Z, 1, 4, 8);
    program_number(p);
    return p;
}

static void wrong_version(struct program *p)
{
    operand_at(p, 2, 1)->version = 0;
}
static void stale_update(struct program *p)
{
    operand_at(p, 1, 0)->version = 1;
}
static void wrong_tensor(struct program *p)
{
    operand_at(p, 0, 1)->tensor = Y;
}
static void wrong_rows(struct program *p)
{
    struct operand *o = operand_at(p, 0, 1);
    o->row0 = 1, o->bytes = 7 * ROW;
}
static void rows_beyond(struct program *p)
{
    operand_at(p, 0, 1)->row0 = 1;
}
static void part_of_a_row(struct program *p)
{
    operand_at(p, 0, 1)->bytes--;
}
static void part_of_an_element(struct program *p)
{
    p->tensors[X].row_bytes = 2, p->tensors[X].rows = PAGE;
    operand_at(p, 0, 1)->bytes = 2 * PAGE - 2;
}
static void wrong_address(struct program *p)
{
    operand_at(p, 2, 1)->buffer = 0;
}
static void wrong_offset(struct program *p)
{
    struct operand *o = operand_at(p, 2, 1);
    o->offset = ROW, o->bytes = 7 * ROW;
}
static void beyond_buffer(struct program *p)
{
    operand_at(p, 0, 3)->bytes = PAGE + 1;
}
static void negative_offset(struct program *p)
{
    operand_at(p, 0, 3)->offset = -1;
}
static void beyond_arena(struct program *p)
{
    p->arena[TIER_DEVICE] = 8 * PAGE - 1;
}
static void no_address(struct program *p)
{
    p->buffers[4].address = -1;
}
static void no_buffer(struct program *p)
{
    operand_at(p, 0, 0)->buffer = 99;
}
static void host_operand(struct program *p)
{
    p->arena[TIER_HOST] = 8 * PAGE;
    p->buffers[3].tier = TIER_HOST;
}
static void scratch_read(struct program *p)
{
    operand_at(p, 1, 1)->tensor = -1;
}
static void scratch_as_tensor(struct program *p)
{
    struct operand *o = operand_at(p, 2, 1); /* reads y from bytes to which only scratch was written */
    o->buffer = 4, o->bytes = ROW;
    operand_at(p, 0, 3)->bytes = PAGE;
}
static void unwritten(struct program *p)
{
    p->buffers[3].address = 3 * PAGE, p->buffers[2].address = 5 * PAGE, p->n_live_in = 2;
}
static void written_argument_read(struct program *p)
{
    operand_at(p, 2, 0)->access = ACCESS_READ;
}
static void accumulate_unsaid(struct program *p)
{
    program_call(p, &p->instrs[0])->attrs.gemm.accumulate = 1;
}
static void argument_missing(struct program *p)
{
    operand_at(p, 0, 2)->arg = 1;
}
static void argument_in_pieces(struct program *p)
{
    argument_missing(p);
    p->buffers[1].address = 7 * PAGE;
}
static void argument_unknown(struct program *p)
{
    operand_at(p, 2, 1)->arg = 2;
}
static void overlap_scratch(struct program *p)
{
    operand_at(p, 0, 3)->buffer = 3;
}
static void overlap_input(struct program *p)
{
    operand_at(p, 0, 3)->buffer = 1;
}
static void live_out_version(struct program *p)
{
    p->live_out[1].version = 0;
}
static void live_out_rows(struct program *p)
{
    p->live_out[1].row0 = 3, p->live_out[1].row1 = 7;
}
static void live_out_transient(struct program *p)
{
    p->live_out[1].buffer = 3;
}
static void live_in_overlap(struct program *p)
{
    p->buffers[1].address = PAGE;
}
static void bad_ticket(struct program *p)
{
    p->instrs[1].ticket = 1;
}
static void wait_forward(struct program *p)
{
    p->instrs[1].n_waits = 0, program_add_wait(p, 1, (struct wait){LANE_COMPUTE, 2});
}
static void wait_nowhere(struct program *p)
{
    p->instrs[1].n_waits = 0, program_add_wait(p, 1, (struct wait){LANE_READ, 1});
}
static void wait_zero(struct program *p)
{
    p->instrs[1].n_waits = 0, program_add_wait(p, 1, (struct wait){LANE_COMPUTE, 0});
}
static void kernel_on_copy_lane(struct program *p)
{
    p->instrs[2].lane = LANE_H2D, p->instrs[2].ticket = 1;
}

struct fault {
    const char *name;
    void (*plant)(struct program *p);
    const char *sentence;
};

static void check_faults(struct program *(*make)(void), const struct fault *faults, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        struct program *p = make();
        faults[i].plant(p);
        expect_rejected(p, faults[i].sentence);
        program_destroy(p);
    }
}

static void test_chain(void **state)
{
    (void)state;
    static const struct fault faults[] = {
        {"wrong version", wrong_version,
         "instruction 2 (gelu on compute, ticket 3), operand 1: reads y version 0 rows 0 to 8, but bytes 0x5000 + 8192 of device hold y version 1"},
        {"stale update", stale_update,
         "instruction 1 (accum on compute, ticket 2), operand 0: reads y version 1 rows 0 to 8, but bytes 0x5000 + 8192 of device hold y version 0"},
        {"wrong tensor", wrong_tensor,
         "reads y version 0 rows 0 to 8, but bytes 0 + 8192 of device hold x version 0 rows 0 to 8"},
        {"wrong rows", wrong_rows, "reads x version 0 rows 1 to 8, but bytes 0 + 7168 of device hold x version 0 rows 0 to 7"},
        {"rows beyond", rows_beyond, "it names rows that its tensor does not have"},
        {"part of a row", part_of_a_row, "8191 bytes are no whole rows of x"},
        {"part of an element", part_of_an_element, "operand 1: argument 1 has 8190 bytes, which are no whole elements of 4"},
        {"wrong address", wrong_address, "reads y version 1 rows 0 to 8, but bytes 0 + 8192 of device hold x"},
        {"wrong offset", wrong_offset,
         "reads y version 1 rows 0 to 7, but bytes 0x5400 + 7168 of device hold y version 1 rows 1 to 8"},
        {"beyond buffer", beyond_buffer, "operand 3: it is empty or reaches beyond its buffer"},
        {"negative offset", negative_offset, "operand 3: it is empty or reaches beyond its buffer"},
        {"beyond arena", beyond_arena, "beyond the end of its tier's arena"},
        {"no address", no_address, "its buffer has no address"},
        {"no buffer", no_buffer, "it names a buffer that does not exist"},
        {"lane and tier", host_operand, "the compute lane touches the device only, not to host memory"},
        {"scratch read", scratch_read, "scratch has no content"},
        {"scratch as tensor", scratch_as_tensor, "but bytes 0x7000 + 1024 of device hold scratch"},
        {"unwritten", unwritten, "reads z version 0 rows 0 to 8, but bytes 0x5000 + 8192 of device were never written"},
        {"written argument read", written_argument_read, "argument 0 is written by this op"},
        {"accumulate", accumulate_unsaid, "argument 0 is updated by this op"},
        {"argument missing", argument_missing, "argument 2 is missing"},
        {"argument in pieces", argument_in_pieces, "operand 2: it does not continue argument 1 in memory"},
        {"argument unknown", argument_unknown, "the op has no argument 2"},
        {"scratch over output", overlap_scratch, "writes bytes that operand 0 of the same instruction writes"},
        {"scratch over input", overlap_input, "writes bytes that operand 2 of the same instruction reads"},
        {"live-out version", live_out_version,
         "live-out binding 1 promises z version 0 rows 4 to 8, but at the end bytes 0x4000 + 4096 of device hold z version 1"},
        {"live-out rows", live_out_rows, "live-out binding 1 promises z version 1 rows 3 to 7"},
        {"live-out transient", live_out_transient, "its buffer is not persistent"},
        {"live-in overlap", live_in_overlap, "live-in bindings 0 (x) and 1 (w) share bytes of device"},
        {"ticket", bad_ticket, "its ticket is 1, but it is the lane's instruction number 2"},
        {"wait forward", wait_forward, "it waits for compute ticket 2, of which only 1 come before it"},
        {"wait for nothing", wait_nowhere, "it waits for read ticket 1, of which only 0 come before it"},
        {"wait zero", wait_zero, "it waits for compute ticket 0"},
        {"kernel on a copy lane", kernel_on_copy_lane, "this lane executes copies only"},
    };
    struct program *p = chain();
    expect_accepted(p);
    program_destroy(p);
    check_faults(chain, faults, sizeof faults / sizeof *faults);
}

/* --- A round trip through the host and nvme, with addresses used again --- */

enum { A, B, C };

/* Makes a round trip: b = gelu(a) is moved to nvme; c takes b's place on the device and is moved to b's former place on the host;
 * b comes back. Tickets: compute 1, 2, 3; d2h 1, 2; write 1; read 1; h2d 1. */
static struct program *round_trip(void)
{
    struct program *p = build_begin("round trip", 8 * PAGE, 4 * PAGE, 4 * PAGE);
    program_add_tensor(p, "a", CLASS_ACT, 8, ROW);
    program_add_tensor(p, "b", CLASS_ACT, 8, ROW);
    program_add_tensor(p, "c", CLASS_ACT, 8, ROW);
    int da = build_buffer(p, TIER_DEVICE, 0, 2 * PAGE, 1), hc = build_buffer(p, TIER_HOST, 0, 2 * PAGE, 1);
    int db = build_buffer(p, TIER_DEVICE, 2 * PAGE, 2 * PAGE, 0), dc = build_buffer(p, TIER_DEVICE, 2 * PAGE, 2 * PAGE, 0);
    int hb = build_buffer(p, TIER_HOST, 0, 2 * PAGE, 0), hb2 = build_buffer(p, TIER_HOST, 2 * PAGE, 2 * PAGE, 0);
    int nb = build_buffer(p, TIER_NVME, PAGE, 2 * PAGE, 0), db2 = build_buffer(p, TIER_DEVICE, 2 * PAGE, 2 * PAGE, 0);
    build_bind(p, 0, da, 0, A, 0, 0, 8);

    program_add_instr(p, OP_GELU, LANE_COMPUTE); /* 0 */
    build_operand(p, 0, ACCESS_WRITE, db, 0, B, 0, 0, 8);
    build_operand(p, 1, ACCESS_READ, da, 0, A, 0, 0, 8);
    build_copy(p, LANE_D2H, db, 0, hb, 0, B, 0, 0, 8); /* 1 */
    build_wait(p, LANE_COMPUTE, 1);
    build_copy(p, LANE_WRITE, hb, 0, nb, 0, B, 0, 0, 8); /* 2 */
    build_wait(p, LANE_D2H, 1);
    program_add_instr(p, OP_GELU, LANE_COMPUTE); /* 3: overwrites b */
    build_operand(p, 0, ACCESS_WRITE, dc, 0, C, 0, 0, 8);
    build_operand(p, 1, ACCESS_READ, da, 0, A, 0, 0, 8);
    build_wait(p, LANE_D2H, 1);
    build_copy(p, LANE_D2H, dc, 0, hc, 0, C, 0, 0, 8); /* 4: overwrites b in its host slot */
    build_wait(p, LANE_COMPUTE, 2);
    build_wait(p, LANE_WRITE, 1);
    build_copy(p, LANE_READ, nb, 0, hb2, 0, B, 0, 0, 8); /* 5 */
    build_wait(p, LANE_WRITE, 1);
    build_copy(p, LANE_H2D, hb2, 0, db2, 0, B, 0, 0, 8); /* 6: overwrites c */
    build_wait(p, LANE_READ, 1);
    build_wait(p, LANE_D2H, 2);
    program_add_instr(p, OP_ACCUM, LANE_COMPUTE); /* 7 */
    build_operand(p, 0, ACCESS_UPDATE, da, 0, A, 0, 0, 8);
    build_operand(p, 1, ACCESS_READ, db2, 0, B, 0, 0, 8);
    build_wait(p, LANE_H2D, 1);

    build_bind(p, 1, da, 0, A, 1, 0, 8);
    build_bind(p, 1, hc, 0, C, 0, 0, 8);
    program_number(p);
    return p;
}

static void raw(struct program *p)
{
    drop_wait(p, 1, 0);
}
static void raw_pipelined(struct program *p)
{
    drop_wait(p, 2, 0);
}
static void raw_nvme(struct program *p)
{
    drop_wait(p, 5, 0);
}
static void war(struct program *p)
{
    drop_wait(p, 3, 0);
}
static void war_host(struct program *p)
{
    drop_wait(p, 4, 1);
}
static void transitive(struct program *p)
{
    drop_wait(p, 7, 0);
}
/* Instruction 6 (h2d) overwrites c. Its wait for d2h 2 orders it after compute 2, which wrote c, since d2h 2 waits for compute 2;
 * a wait for d2h 1 alone does not order them. */
static void transitive_weakened(struct program *p)
{
    program_waits(p, &p->instrs[6])[1].ticket = 1;
}
static void weakened(struct program *p)
{
    program_waits(p, &p->instrs[4])[0].ticket = 1;
}
static void discrete_read(struct program *p)
{
    operand_at(p, 5, 1)->buffer = 7;
}
static void discrete_write(struct program *p)
{
    operand_at(p, 2, 0)->buffer = 2;
}
static void host_kernel(struct program *p)
{
    p->instrs[7].lane = LANE_HOST, p->instrs[7].ticket = 1;
}
static void copy_version(struct program *p)
{
    operand_at(p, 4, 1)->version = 1;
}
static void copy_tensor(struct program *p)
{
    operand_at(p, 4, 1)->tensor = A;
}
static void copy_size(struct program *p)
{
    operand_at(p, 4, 1)->bytes = 4 * ROW;
}
static void copy_rows(struct program *p)
{
    for (int k = 0; k < 2; k++)
        operand_at(p, 4, k)->bytes = 4 * ROW;
    operand_at(p, 4, 1)->row0 = 4;
}
static void copy_attribute(struct program *p)
{
    program_call(p, &p->instrs[4])->attrs.copy.bytes = ROW;
}
static void extent_part(struct program *p)
{
    for (int k = 0; k < 2; k++)
        operand_at(p, 5, k)->bytes = 4 * ROW;
}
static void extent_unaligned(struct program *p)
{
    for (int k = 0; k < 2; k++)
        operand_at(p, 5, k)->row0 = 1, operand_at(p, 5, k)->bytes = 7 * ROW, operand_at(p, 5, k)->offset = ROW;
}
static void stale_part(struct program *p)
{
    struct operand *o = operand_at(p, 6, 1); /* only half of b comes back, and overwrites half of c */
    o->bytes = 4 * ROW;
    *operand_at(p, 6, 0) = (struct operand){.access = ACCESS_READ, .buffer = 5, .tensor = B, .bytes = 4 * ROW};
}

static void test_round_trip(void **state)
{
    (void)state;
    static const struct fault faults[] = {
        {"RAW", raw,
         "instruction 1 (copy on d2h, ticket 1), operand 0: reads bytes at 0x2000 of device written by instruction 0 (gelu on compute, ticket 1) without being ordered after it (it knows compute up to ticket 0)"},
        {"RAW on an I/O lane", raw_pipelined,
         "instruction 2 (copy on write, ticket 1), operand 0: reads bytes at 0 of host written by instruction 1"},
        {"RAW on nvme", raw_nvme,
         "instruction 5 (copy on read, ticket 1), operand 0: reads bytes at 0x1000 of nvme written by instruction 2"},
        {"WAR", war,
         "instruction 3 (gelu on compute, ticket 2), operand 0: writes bytes at 0x2000 of device read by instruction 1 (copy on d2h, ticket 1)"},
        {"WAR on the host", war_host,
         "instruction 4 (copy on d2h, ticket 2), operand 1: writes bytes at 0 of host read by instruction 2 (copy on write, ticket 1)"},
        {"transitive", transitive,
         "instruction 7 (accum on compute, ticket 3), operand 1: reads bytes at 0x2000 of device written by instruction 6"},
        {"transitive, weakened", transitive_weakened,
         "instruction 6 (copy on h2d, ticket 1), operand 1: writes bytes at 0x2000 of device written by instruction 3"},
        {"weakened", weakened,
         "instruction 4 (copy on d2h, ticket 2), operand 0: reads bytes at 0x2000 of device written by instruction 3 (gelu on compute, ticket 2) without being ordered after it (it knows compute up to ticket 1)"},
        {"read to a discrete device", discrete_read,
         "the read lane copies from nvme to the host, or to a device that is not discrete, not to device memory"},
        {"write from a discrete device", discrete_write,
         "the write lane copies to nvme from the host, or from a device that is not discrete, not from device memory"},
        {"host kernel on a discrete device", host_kernel, "the host lane reaches the host only"},
        {"copy: version", copy_version, "a copy of version 0 of c cannot be version 1"},
        {"copy: tensor", copy_tensor, "a copy of c cannot be a"},
        {"copy: size", copy_size, "source and destination of the copy differ in size"},
        {"copy: rows", copy_rows, "the copy moves rows of c: row 4 comes from row 0"},
        {"copy: attribute", copy_attribute, "the copy's attribute says 1024 bytes, its operands 8192"},
        {"part of an extent", extent_part, "which were not written as one extent"},
        {"unaligned extent", extent_unaligned, "an nvme extent must start at a multiple of 4096"},
        {"stale part", stale_part,
         "reads b version 0 rows 0 to 8, but bytes 0x3000 + 4096 of device hold c version 0 rows 4 to 8"},
    };
    struct program *p = round_trip();
    int tried;
    expect_accepted(p);
    assert_int_equal(mutate_delete_waits(p, 0, &tried), 0);
    assert_int_equal(tried, 9);
    assert_int_equal(mutate_weaken_waits(p, 0, &tried), 0);
    assert_int_equal(tried, 9);
    /* if the device is not discrete, nvme may go straight to the device, and host kernels may work there */
    discrete_write(p);
    program_waits(p, &p->instrs[2])[0] = (struct wait){LANE_COMPUTE, 1};
    program_add_wait(p, 3, (struct wait){LANE_WRITE, 1});
    drop_wait(p, 4, 1);
    host_kernel(p);
    expect_rejected(p, "not from device memory");
    p->discrete = 0;
    expect_accepted(p);
    program_destroy(p);
    check_faults(round_trip, faults, sizeof faults / sizeof *faults);
}

/* --- A ring of two staging slots --- */

enum { CHUNKS = 6 };

/* Makes a program that for each chunk i copies nvme -> host slot i % 2 -> device slot i % 2, then adds the chunk to y. Chunk i
 * has ticket i + 1 on every lane. */
static struct program *ring(void)
{
    struct program *p = build_begin("ring", 3 * PAGE, 2 * PAGE, CHUNKS * PAGE);
    int x = program_add_tensor(p, "x", CLASS_ACT, CHUNKS * 4, ROW), y = program_add_tensor(p, "y", CLASS_ACT, 4, ROW);
    int by = build_buffer(p, TIER_DEVICE, 2 * PAGE, PAGE, 1), bx = build_buffer(p, TIER_NVME, 0, CHUNKS * PAGE, 1);
    int host = build_buffer(p, TIER_HOST, 0, 2 * PAGE, 0), device = build_buffer(p, TIER_DEVICE, 0, 2 * PAGE, 0);
    build_bind(p, 0, by, 0, y, 0, 0, 4);
    for (int i = 0; i < CHUNKS; i++)
        build_bind(p, 0, bx, i * PAGE, x, 0, 4 * i, 4 * i + 4);
    for (int i = 0; i < CHUNKS; i++) {
        int64_t slot = i % 2 * PAGE;
        build_copy(p, LANE_READ, bx, i * PAGE, host, slot, x, 0, 4 * i, 4 * i + 4);
        if (i >= 2)
            build_wait(p, LANE_H2D, i - 1);
        build_copy(p, LANE_H2D, host, slot, device, slot, x, 0, 4 * i, 4 * i + 4);
        build_wait(p, LANE_READ, i + 1);
        if (i >= 2)
            build_wait(p, LANE_COMPUTE, i - 1);
        program_add_instr(p, OP_ACCUM, LANE_COMPUTE);
        build_operand(p, 0, ACCESS_UPDATE, by, 0, y, i, 0, 4);
        build_operand(p, 1, ACCESS_READ, device, slot, x, 0, 4 * i, 4 * i + 4);
        build_wait(p, LANE_H2D, i + 1);
    }
    build_bind(p, 1, by, 0, y, CHUNKS, 0, 4);
    for (int i = 0; i < CHUNKS; i++)
        build_bind(p, 1, bx, i * PAGE, x, 0, 4 * i, 4 * i + 4);
    program_number(p);
    return p;
}

static void bind_two_extents(struct program *p)
{
    p->live_out[1].row1 = 8;
    p->live_out[1].extent_bytes = 8 * ROW;
    p->live_out[2] = p->live_out[3];
}
static void bind_beyond_extent(struct program *p)
{
    p->live_out[1].row1 = 8;
}
/* replaces two reads by one read of two chunks as a single extent, although nvme has them as two extents */
static void read_two_extents(struct program *p)
{
    for (int k = 0; k < 2; k++)
        operand_at(p, 0, k)->bytes = 8 * ROW;
}
/* makes both chunks a single extent on nvme */
static void one_extent(struct program *p)
{
    for (int b = 0; b < 2; b++)
        p->live_in[1 + b].extent_offset = p->live_out[1 + b].extent_offset = 0,
                       p->live_in[1 + b].extent_bytes = p->live_out[1 + b].extent_bytes = 2 * PAGE;
}

static void test_ring(void **state)
{
    (void)state;
    static const struct fault faults[] = {
        {"live-out extent", bind_two_extents, "live-out binding 1 (x) was not written to nvme as one extent"},
        {"beyond the extent", bind_beyond_extent, "its nvme extent is not aligned or does not contain it"},
        {"two extents", read_two_extents, "reads nvme bytes 0 + 8192, which were not written as one extent"},
        {"half an extent", one_extent, "reads nvme bytes 0 + 4096, which were not written as one extent"},
    };
    struct program *p = ring();
    int tried;
    expect_accepted(p);
    assert_int_equal(mutate_delete_waits(p, 0, &tried), 0);
    assert_int_equal(tried, 4 * CHUNKS - 4);
    assert_int_equal(mutate_weaken_waits(p, 0, &tried), 0);
    assert_int_equal(mutate_delete_waits(p, 3, &tried), 0);
    assert_int_equal(tried, 3);
    program_destroy(p);
    check_faults(ring, faults, sizeof faults / sizeof *faults);
}

/* --- Extents of several tensors --- */

/* Makes a program in which u and v are on nvme as one extent of 8 rows (4 each) with a binding each. The extent is read, and v is
 * written to another place. */
static struct program *shared_extent(void)
{
    struct program *p = build_begin("shared extent", 0, 4 * PAGE, 4 * PAGE);
    int u = program_add_tensor(p, "u", CLASS_ACT, 4, ROW), v = program_add_tensor(p, "v", CLASS_ACT, 4, ROW);
    int bn = build_buffer(p, TIER_NVME, 0, 4 * PAGE, 1), bh = build_buffer(p, TIER_HOST, 0, 2 * PAGE, 0);
    for (int out = 0; out < 2; out++) {
        build_bind(p, out, bn, 0, u, 0, 0, 4);
        build_bind(p, out, bn, PAGE, v, 0, 0, 4);
    }
    for (int k = 0; k < 2; k++) {
        p->live_in[k].extent_offset = p->live_out[k].extent_offset = 0;
        p->live_in[k].extent_bytes = p->live_out[k].extent_bytes = 2 * PAGE;
    }
    program_add_instr(p, OP_COPY, LANE_READ);
    for (int arg = 0; arg < 2; arg++) {
        build_operand(p, arg, arg ? ACCESS_WRITE : ACCESS_READ, arg ? bh : bn, 0, u, 0, 0, 4);
        build_operand(p, arg, arg ? ACCESS_WRITE : ACCESS_READ, arg ? bh : bn, PAGE, v, 0, 0, 4);
    }
    build_copy(p, LANE_WRITE, bh, PAGE, bn, 3 * PAGE, v, 0, 0, 4);
    build_wait(p, LANE_READ, 1);
    program_number(p);
    return p;
}

static void overwrite_half(struct program *p)
{
    operand_at(p, 1, 1)->offset = PAGE; /* v overwrites itself: the bytes are right, but the extent is destroyed */
    p->n_live_out = 1;                  /* checking u alone would not notice that */
}
static void extents_cross(struct program *p)
{
    p->live_in[1].extent_offset = PAGE, p->live_in[1].extent_bytes = PAGE;
}
static void read_half(struct program *p)
{
    struct operand *o = operand_at(p, 0, 0);
    o[1] = o[2];
    p->instrs[0].n_operands = 2;
}

static void test_shared_extent(void **state)
{
    (void)state;
    static const struct fault faults[] = {
        {"half overwritten", overwrite_half,
         "live-out binding 0 (u) was not written to nvme as one extent, or that is partly overwritten"},
        {"extents cross", extents_cross, "live-in binding 0 (u) shares nvme bytes with another extent"},
        {"half read", read_half, "reads nvme bytes 0 + 4096, which were not written as one extent"},
    };
    struct program *p = shared_extent();
    expect_accepted(p);
    program_destroy(p);
    check_faults(shared_extent, faults, sizeof faults / sizeof *faults);
}

/* --- Clocks on pipelined lanes --- */

/* Makes a program in which two copies on `lane` write the same slot. */
static struct program *overwrite(enum lane lane)
{
    struct program *p = build_begin("overwrite", 4 * PAGE, 4 * PAGE, 4 * PAGE);
    enum tier from = lane == LANE_READ ? TIER_NVME : TIER_HOST, to = lane == LANE_READ ? TIER_HOST : TIER_DEVICE;
    int x = program_add_tensor(p, "x", CLASS_ACT, 8, ROW);
    int src = build_buffer(p, from, 0, 2 * PAGE, 1), dst = build_buffer(p, to, 0, PAGE, 1);
    for (int i = 0; i < 2; i++) {
        build_bind(p, 0, src, i * PAGE, x, 0, 4 * i, 4 * i + 4);
        build_copy(p, lane, src, i * PAGE, dst, 0, x, 0, 4 * i, 4 * i + 4);
    }
    build_bind(p, 1, dst, 0, x, 0, 4, 8);
    program_number(p);
    return p;
}

static void test_start_is_not_retirement(void **state)
{
    (void)state;
    struct program *p = overwrite(LANE_H2D);
    expect_accepted(p);
    program_destroy(p);
    p = overwrite(LANE_READ);
    expect_rejected(
        p,
        "writes bytes at 0 of host written by instruction 0 (copy on read, ticket 1) without being ordered after it (it knows read up to ticket 0)");
    build_wait(p, LANE_READ, 1); /* a wait for an earlier instruction of its own lane */
    expect_accepted(p);
    program_destroy(p);
}

/* Lanes retire in order: READ 1 and 2 fill two slots; an h2d takes the first slot, but waits for READ 2 only. */
static void test_retirement_is_in_order(void **state)
{
    (void)state;
    struct program *p = build_begin("in order", 4 * PAGE, 4 * PAGE, 4 * PAGE);
    int x = program_add_tensor(p, "x", CLASS_ACT, 8, ROW);
    int src = build_buffer(p, TIER_NVME, 0, 2 * PAGE, 1), mid = build_buffer(p, TIER_HOST, 0, 2 * PAGE, 0),
        dst = build_buffer(p, TIER_DEVICE, 0, 2 * PAGE, 0);
    for (int i = 0; i < 2; i++) {
        build_bind(p, 0, src, i * PAGE, x, 0, 4 * i, 4 * i + 4);
        build_copy(p, LANE_READ, src, i * PAGE, mid, i * PAGE, x, 0, 4 * i, 4 * i + 4);
    }
    build_copy(p, LANE_H2D, mid, 0, dst, 0, x, 0, 0, 4);
    build_wait(p, LANE_READ, 2);
    /* READ 3 waits for that h2d. READ 4 overwrites the slot that the h2d read, and starts after READ 3 has started, so it needs
     * no wait for the h2d. READ 1, which wrote the slot, must have retired, too; READ 4 knows this through READ 3's start and the
     * h2d */
    build_copy(p, LANE_READ, src, PAGE, mid, PAGE, x, 0, 4, 8);
    build_wait(p, LANE_H2D, 1);
    build_copy(p, LANE_READ, src, PAGE, mid, 0, x, 0, 4, 8);
    program_number(p);
    expect_accepted(p);
    /* enough for the slot that the h2d reads; but now READ 3 may start while READ 2 still fills the slot that READ 3 overwrites */
    program_waits(p, &p->instrs[2])[0].ticket = 1;
    expect_rejected(
        p,
        "instruction 3 (copy on read, ticket 3), operand 1: writes bytes at 0x1000 of host written by instruction 1 (copy on read, ticket 2) without");
    program_destroy(p);
}

/* d2h and compute read c, and the instruction that overwrites c must be ordered after both. Waiting for one of three lanes does
 * not order it after the third. */
static void test_three_lanes(void **state)
{
    (void)state;
    struct program *p = build_begin("three lanes", 8 * PAGE, 8 * PAGE, 0);
    int x = program_add_tensor(p, "x", CLASS_ACT, 4, ROW), z = program_add_tensor(p, "z", CLASS_ACT, 4, ROW);
    int src = build_buffer(p, TIER_HOST, 0, PAGE, 1), dev = build_buffer(p, TIER_DEVICE, 0, PAGE, 0),
        back = build_buffer(p, TIER_HOST, PAGE, PAGE, 0);
    int bz = build_buffer(p, TIER_DEVICE, PAGE, PAGE, 0), copy = build_buffer(p, TIER_HOST, 2 * PAGE, PAGE, 0);
    build_bind(p, 0, src, 0, x, 0, 0, 4);
    build_copy(p, LANE_H2D, src, 0, dev, 0, x, 0, 0, 4);
    program_add_instr(p, OP_GELU, LANE_COMPUTE);
    build_operand(p, 0, ACCESS_WRITE, bz, 0, z, 0, 0, 4);
    build_operand(p, 1, ACCESS_READ, dev, 0, x, 0, 0, 4);
    build_wait(p, LANE_H2D, 1);
    build_copy(p, LANE_D2H, dev, 0, back, 0, x, 0, 0, 4); /* knows h2d 1 */
    build_wait(p, LANE_H2D, 1);
    build_copy(p, LANE_D2H, bz, 0, copy, 0, z, 0, 0, 4); /* ordered after compute 1, and through it after h2d 1 */
    build_wait(p, LANE_COMPUTE, 1);
    /* overwrites data that compute 1 and d2h 1 have read: waiting for d2h 2 orders it after both */
    build_copy(p, LANE_H2D, src, 0, dev, 0, x, 0, 0, 4);
    build_wait(p, LANE_D2H, 2);
    program_number(p);
    expect_accepted(p);
    program_waits(p, &p->instrs[4])[0].ticket = 1;
    expect_rejected(
        p,
        "instruction 4 (copy on h2d, ticket 2), operand 1: writes bytes at 0 of device read by instruction 1 (gelu on compute, ticket 1)");
    program_waits(p, &p->instrs[4])[0] = (struct wait){LANE_COMPUTE, 1};
    expect_rejected(
        p,
        "instruction 4 (copy on h2d, ticket 2), operand 1: writes bytes at 0 of device read by instruction 2 (copy on d2h, ticket 1)");
    program_destroy(p);
}

/* An argument that is updated in place is a single operand, both read and written; an output may not share memory with an input. */
static void test_overlap(void **state)
{
    (void)state;
    struct program *p = build_begin("overlap", 4 * PAGE, 0, 0);
    int x = program_add_tensor(p, "x", CLASS_ACT, 2, ROW), y = program_add_tensor(p, "y", CLASS_ACT, 2, ROW);
    int b = build_buffer(p, TIER_DEVICE, 0, 2 * PAGE, 1);
    build_bind(p, 0, b, 0, x, 0, 0, 2);
    program_add_instr(p, OP_GELU, LANE_COMPUTE);
    build_operand(p, 0, ACCESS_WRITE, b, PAGE, y, 0, 0, 2);
    build_operand(p, 1, ACCESS_READ, b, 0, x, 0, 0, 2);
    program_number(p);
    expect_accepted(p);
    operand_at(p, 0, 0)->offset = 2 * ROW;
    expect_accepted(p);
    operand_at(p, 0, 0)->offset = ROW;
    expect_rejected(p, "writes bytes that operand 1 of the same instruction reads");
    operand_at(p, 0, 0)->offset = 0;
    expect_rejected(p, "writes bytes that operand 1 of the same instruction reads");
    program_destroy(p);
}

static void test_empty(void **state)
{
    (void)state;
    struct program *p = build_begin("empty", 0, 0, 0);
    uint64_t digest;
    expect_accepted(p);
    assert_int_equal(program_value_digest(p, &digest), OK);
    program_destroy(p);
}

/* Every allocation fails once, and each failure is reported. */
static void test_out_of_memory(void **state)
{
    (void)state;
    struct program *p = round_trip();
    uint64_t digest;
    long before = sys_count(SYS_MALLOC);
    assert_int_equal(program_verify(p), OK);
    assert_int_equal(program_value_digest(p, &digest), OK);
    long n = sys_count(SYS_MALLOC) - before;
    assert_true(n > 10);
    for (int i = 1; i <= n; i++) {
        sys_inject(SYS_MALLOC, i, ENOMEM);
        enum status st = program_verify(p);
        if (st == OK)
            st = program_value_digest(p, &digest);
        assert_int_equal(st, ERR_NOMEM);
        sys_inject_clear();
    }
    program_destroy(p);
}

/* Numbers that the tables' fields cannot hold are refused, not cut off. */
static void test_too_large(void **state)
{
    (void)state;
    for (int k = 0; k < 5; k++) {
        struct program *p;
        struct operand o = {.access = ACCESS_WRITE, .tensor = -1, .bytes = 4};
        assert_int_equal(program_create("large", &p), OK);
        program_add_instr(p, OP_FILL, LANE_COMPUTE);
        program_add_buffer(p, TIER_HOST, PROGRAM_MOST_BYTES - (k != 1), CLASS_ACT, 0);
        program_add_tensor(p, "t", CLASS_ACT, PROGRAM_MOST_ROWS - (k != 2), 1);
        o.version = PROGRAM_MOST_VERSIONS - 1 - (k != 3);
        for (int i = 0; i < PROGRAM_MOST_OPERANDS - (k != 4); i++)
            program_add_operand(p, o);
        assert_int_equal(program_built(p), k == 0 ? OK : ERR_NOFIT);
        assert_int_equal(p->excess, k == 0 ? EXCESS_NONE : k < 3 ? EXCESS_BYTES : EXCESS_PARTS);
        program_destroy(p);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_empty),
        cmocka_unit_test(test_chain),
        cmocka_unit_test(test_round_trip),
        cmocka_unit_test(test_ring),
        cmocka_unit_test(test_shared_extent),
        cmocka_unit_test(test_start_is_not_retirement),
        cmocka_unit_test(test_retirement_is_in_order),
        cmocka_unit_test(test_three_lanes),
        cmocka_unit_test(test_overlap),
        cmocka_unit_test(test_out_of_memory),
        cmocka_unit_test(test_too_large),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
