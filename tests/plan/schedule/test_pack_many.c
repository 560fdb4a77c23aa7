/* Tests packing of more buffers than are placed one after another: programs with many chunks of a few layers, with a stored base
 * and with a smaller, quantised base that makes more buffers. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "engine/cuda_target.h"
#include "machine/hardware.h"
#include "plan/lower/fixed.h"
#include "plan/lower/program.h"
#include "plan/plan.h"
#include "plan/schedule/order.h"
#include "plan_request.h"

/* Returns the device's arena of 8b with adapters in 6 layers, with as little as possible on the device. */
static int64_t arena(enum model_base base, int64_t tokens)
{
    struct model_config c;
    struct hardware h;
    struct model *m;
    struct plan_request s;
    struct strategy t;
    struct program *p;
    struct io_buffers io;
    assert_int_equal(hardware_preset("rtx4090", &h), OK);
    struct target target = cuda_target(h.capability, h.processors, 1);
    assert_int_equal(model_preset("8b", &c), OK);
    assert_int_equal(lora_parse("--lora", "r=32", &c.lora), OK);
    c.layers = 6;
    c.vocab = 32000;
    c.base = base;
    assert_int_equal(model_create(&c, NULL, 0, &m), OK);
    plan_request_defaults(&s, tokens);
    s.lora = c.lora;
    s.target = &target;
    s.device = DEVICE_CUDA;
    s.dtype = BF16;
    s.row_chunk = 8192;
    s.head_tile = 2;
    s.loss_tile = 1024;
    assert_int_equal(plan_fixed(m, &s, &t), OK);
    t.placement.params = t.placement.grads = t.placement.optim = RES_HOST;
    t.placement.acts = t.placement.passing = RES_NVME;
    t.placement.update_on_host = 1;
    assert_int_equal(lower_program(m, &t, DUTY_UPDATE | DUTY_FORWARD | DUTY_BACKWARD | DUTY_FIRST | DUTY_LAST, &io, &p), OK);
    assert_int_equal(schedule_pack_serially(p), OK);
    const int64_t needed = p->arena[TIER_DEVICE], live = p->lower_bound[TIER_DEVICE];
    print_message("%lld tokens: %d buffers, %lld bytes live at once, packed in %.4f times as many\n", (long long)tokens,
                  p->n_buffers, (long long)live, (double)needed / (double)live);
    assert_true((double)needed <= 1.02 * (double)live);
    program_destroy(p);
    model_destroy(m);
    return needed;
}

/* A smaller base needs less memory. Formerly its packing took 1.16 times the bytes that live at once, and --max-seq was 11%
 * shorter with a 4-bit base than without. */
static void a_smaller_base_needs_less(void **state)
{
    (void)state;
    assert_true(arena(BASE_NF4, 131072) < arena(BASE_STORED, 131072));
    assert_true(arena(BASE_NF4, 262144) < arena(BASE_STORED, 262144));
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(a_smaller_base_needs_less)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
