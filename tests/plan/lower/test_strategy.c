/* Tests copies of placements between grids. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "plan/lower/strategy.h"

/* A placement that is copied keeps the same share of row chunks on the device, whatever each grid's chunks are. */
static void placements_of_other_grids(void **state)
{
    (void)state;
    static const struct {
        int64_t rows, chunk;
        int chunks;
    } to[] = {{4096, 256, 12}, {4096, 512, 6}, {4096, 1024, 3}, {8192, 512, 12}, {4096, 4096, 0}};
    const struct strategy like = {.key.row_chunk = 256,
                                  .rows = 4096,
                                  .placement = {.device_chunks = 12,
                                                .kept_chunks = 5,
                                                .full_more = 2,
                                                .light_fewer = 3,
                                                .prefetch = 4,
                                                .device_layers = 2,
                                                .acts = RES_NVME,
                                                .cached = RES_NVME,
                                                .keep_inputs = 3}};
    for (size_t i = 0; i < sizeof to / sizeof *to; i++) {
        struct strategy s = {
            .key.row_chunk = to[i].chunk,
            .rows = to[i].rows,
            .placement = {.kept_chunks = 1, .full_more = 9, .light_fewer = 9, .prefetch = 0.5, .cached = RES_HOST}};
        strategy_place(&s, &like);
        assert_int_equal(s.placement.device_chunks, to[i].chunks);
        assert_true(s.placement.kept_chunks == 1 && s.placement.full_more == 0 && s.placement.light_fewer == 0);
        assert_true(s.placement.prefetch == 0.5 && s.placement.cached == RES_HOST);
        assert_true(s.placement.acts == RES_NVME && s.placement.device_layers == 2 && s.placement.keep_inputs == 3);
        assert_int_equal(strategy_share(&s, &like), ceil_div(5 * ceil_div(to[i].rows, to[i].chunk), 16));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(placements_of_other_grids)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
