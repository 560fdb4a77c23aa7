/* The communicator of a single process. */
#include "comm/comm.h"

#include "base/num.h"

struct comm comm_self(void)
{
    return (struct comm){.rank = 0, .size = 1, .source = "single process"};
}

void comm_share(int64_t n, int64_t grain, int rank, int size, int64_t *first, int64_t *count)
{
    int64_t grains = ceil_div(n, grain);
    *first = min_i64(n, grains * rank / size * grain);
    *count = min_i64(n, grains * (rank + 1) / size * grain) - *first;
}
