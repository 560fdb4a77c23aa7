/* The defaults. */
#include "settings/settings.h"

void plan_request_defaults(struct plan_request *r, int64_t seq_len)
{
    *r = (struct plan_request){.seq_len = seq_len,
                               .micro_batch = 1,
                               .grad_accum = 1,
                               .batch = AUTO,
                               .steps = 100,
                               .zero = 3,
                               .dp = AUTO,
                               .ulysses = AUTO,
                               .ring = AUTO,
                               .ranks = AUTO,
                               .alpha = AUTO,
                               .keep_inputs = AUTO,
                               .prefetch = AUTO,
                               .device_mem = AUTO,
                               .host_mem = AUTO,
                               .nvme_max = AUTO,
                               .nvme_drives = AUTO,
                               .row_chunk = AUTO,
                               .head_tile = AUTO,
                               .loss_tile = AUTO,
                               .group = AUTO,
                               .threads = AUTO};
}

void settings_defaults(struct settings *s, int64_t seq_len)
{
    *s = (struct settings){.comm_timeout = 600,
                           .lr = 3e-4,
                           .weight_decay = 0.1,
                           .beta1 = 0.9,
                           .beta2 = 0.95,
                           .eps = 1e-8,
                           .clip = 1,
                           .seed = 1,
                           .keep = 2,
                           .trace = AUTO};
    plan_request_defaults(&s->plan, seq_len);
}
