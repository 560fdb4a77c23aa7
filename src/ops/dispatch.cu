/* Rows of pairs on their way to the ranks that have their experts, and back. Each thread finds the place of its row from the offsets of
 * all members: without atomic operations, so that rows keep their order. */
#include "ops/cuda_vec.cuh"

namespace
{

struct arrive_args {
    int32_t *order, *place, *offsets, *ids; /* ids: NULL: not wanted */
    const int32_t *all;
    const struct step_record *record;
    int32_t rows, experts, each, members, group;
};

/* Offsets of the members' pairs with this rank's experts. */
struct arriving {
    const int32_t *first; /* member 0's offsets */
    int32_t stride, each, members;

    /* Returns the rows of a member's pairs with experts before e. */
    __device__ __forceinline__ int32_t before(int member, int e) const
    {
        const int32_t *of = first + (int64_t)member * stride;
        return of[e] - of[0];
    }

    /* Returns the rows of all members' pairs with experts before e. */
    __device__ __forceinline__ int32_t all_before(int e) const
    {
        int32_t sum = 0;
        for (int m = 0; m < members; m++)
            sum += before(m, e);
        return sum;
    }
};

/* Finds the expert of a member's row: the last one that begins at it or before it. */
__device__ __forceinline__ int expert_of(const arriving &x, int member, int32_t row)
{
    int low = 0, high = x.each;
    while (high - low > 1) {
        const int middle = (low + high) / 2;
        if (x.before(member, middle) <= row)
            low = middle;
        else
            high = middle;
    }
    return low;
}

/* Finds the sorted row of row i as it arrived, and its expert; -1: nothing arrived there. */
__device__ __forceinline__ int32_t sorted_row(const arriving &x, int32_t i, int *expert)
{
    int member = 0;
    int32_t row = i;
    while (member < x.members && row >= x.before(member, x.each))
        row -= x.before(member++, x.each);
    *expert = -1;
    if (member == x.members)
        return -1;
    const int e = expert_of(x, member, row);
    int32_t sorted = x.all_before(e) + row - x.before(member, e);
    for (int m = 0; m < member; m++)
        sorted += x.before(m, e + 1) - x.before(m, e);
    *expert = e;
    return sorted;
}

/* Places the rows. Rows beyond the room for them get no place, and offsets that say so make NaN of experts' products. */
__global__ void __launch_bounds__(THREADS) place_arrivals(arrive_args a)
{
    const int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    const int me = a.record->member[a.group];
    const arriving x = {a.all + (int64_t)me * a.each, a.experts + 1, a.each, a.members};
    if (i <= a.each)
        a.offsets[i] = x.all_before((int)i);
    if (i >= a.rows)
        return;
    int expert;
    const int32_t sorted = sorted_row(x, (int32_t)i, &expert);
    a.place[i] = sorted < a.rows ? sorted : -1;
    if (a.ids)
        a.ids[i] = expert;
    if (sorted < 0)
        a.order[i] = -1;
    else if (sorted < a.rows)
        a.order[sorted] = (int32_t)i;
}

/* Copies row index[i] / per of x to row i; NaN if there is no such row. */
template <typename T> struct spread {
    T *y;
    const T *x;
    const int32_t *index;
    int64_t cols, x_rows;
    int per;

    template <int N> __device__ __forceinline__ void run(int64_t row, int64_t j) const
    {
        const int32_t from = index[row] / per;
        if (index[row] < 0)
            return;
        float v[N];
        if (from < x_rows) {
            load<N>(v, x + from * cols + j);
        } else {
#pragma unroll
            for (int k = 0; k < N; k++)
                v[k] = NAN;
        }
        store<N>(y + row * cols + j, v);
    }
};

template <typename T> enum status run_spread(const struct op_attrs *attrs, void *const *arg, void *stream)
{
    const spread<T> op = {(T *)arg[0],        (const T *)arg[1],    (const int32_t *)arg[2],
                          attrs->spread.cols, attrs->spread.x_rows, attrs->spread.per};
    return launch_rows<WIDTH<T>>(op, attrs->spread.rows, attrs->spread.cols, aligned_to_vectors({op.y, op.x}), stream);
}

} // namespace

enum status ops_cuda_arrive(const struct op_attrs *attrs, void *const *arg, void *stream)
{
    const auto &x = attrs->arrive;
    if (x.rows < 0 || x.rows > INT32_MAX || x.members < 1 || x.experts < 1 || x.experts % x.members != 0)
        return status_fail(ERR_INVALID, "arrive on cuda: %lld rows of %d experts on %d ranks", (long long)x.rows, x.experts,
                           x.members);
    arrive_args a = {};
    a.order = (int32_t *)arg[0];
    a.place = (int32_t *)arg[1];
    a.offsets = (int32_t *)arg[2];
    a.all = (const int32_t *)arg[3];
    a.record = (const struct step_record *)arg[4];
    a.ids = (int32_t *)arg[5];
    a.rows = (int32_t)x.rows;
    a.experts = x.experts;
    a.each = x.experts / x.members;
    a.members = x.members;
    a.group = x.group;
    const int64_t threads = x.rows > a.each ? x.rows : a.each + 1;
    return launch(dim3((unsigned)blocks_of(threads, THREADS)), dim3(THREADS), 0, stream, place_arrivals, a);
}

enum status ops_cuda_spread(const struct op_attrs *attrs, void *const *arg, void *stream)
{
    TRY(check_storage("spread", attrs->spread.dtype));
    return attrs->spread.dtype == BF16 ? run_spread<bf16>(attrs, arg, stream) : run_spread<float>(attrs, arg, stream);
}
