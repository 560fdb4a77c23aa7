#include "train/metrics_keys.h"

#include <string.h>

/* clang-format off */
const struct metrics_key metrics_keys[METRICS_KEYS] = {
    {"step", KEY_OTHER, "", "number of the optimizer step, from 1; 0: before the first one"},
    {"steps", KEY_OTHER, "", "number of steps since the line before, whose sums this line has (--log-every); absent: 1"},
    {"loss", KEY_RANGE, "nats/token", "mean over the step's supervised tokens"},
    {"grad_norm", KEY_RANGE, "", "L2 norm of all gradients, before they are clipped"},
    {"loss_deviations", KEY_MOST, "", "standard deviations by which the loss lies above the mean of the up to 1000 steps before; null for the first 32"},
    {"grad_norm_deviations", KEY_MOST, "", "the same of the gradient norm"},
    {"lr", KEY_MEAN, "", "learning rate"},
    {"seq_len", KEY_MOST, "tokens", "tokens of a sequence"},
    {"tokens", KEY_SUM, "tokens", "tokens of the step, all ranks"},
    {"target_tokens", KEY_SUM, "tokens", "those that are predicted and trained on"},
    {"seconds", KEY_RANGE, "s", "time of the step"},
    {"tokens_per_second", KEY_OTHER, "tokens/s", "tokens divided by seconds"},
    {"model_flops", KEY_SUM, "FLOP", "what the model takes: causal, nothing twice, all ranks"},
    {"mfu", KEY_MEAN, "", "model_flops by seconds, as a share of the peak"},
    {"mfu_reference", KEY_OTHER, "", "the peak that mfu refers to"},
    {"expert_load", KEY_MEAN, "", "tokens of the busiest expert by the mean, mean of layers"},
    {"expert_load_worst", KEY_MOST, "", "the same of the least even layer"},
    {"expert_entropy", KEY_MEAN, "", "entropy of experts' tokens (1: all have equally many), mean of layers"},
    {"expert_entropy_worst", KEY_MEAN, "", "the same of the least even layer"},
    {"experts_unhit", KEY_MEAN, "", "experts without a token, mean of layers"},
    {"experts_unhit_worst", KEY_MOST, "", "the same of the least even layer"},
    {"aux_loss", KEY_MEAN, "", "loss that evens out experts, without its coefficient"},
    {"aux_coefficient", KEY_MOST, "", "its coefficient"},
    {"device_peak_bytes", KEY_MOST, "bytes", "device memory that the step's programs take, this rank"},
    {"host_peak_bytes", KEY_MOST, "bytes", "host memory that the step's programs take, this rank"},
    {"nvme_bytes", KEY_MOST, "bytes", "bytes on drives that the step's programs take, this rank"},
    {"read_bytes", KEY_SUM, "bytes", "read from drives, all ranks"},
    {"written_bytes", KEY_SUM, "bytes", "written to drives, all ranks"},
    {"sent_inside_hosts_bytes", KEY_SUM, "bytes", "messages between ranks of one host, all ranks"},
    {"sent_to_other_hosts_bytes", KEY_SUM, "bytes", "messages between hosts, all ranks"},
    {"hidden", KEY_MEAN, "", "share of the transfers' time behind compute"},
    {"stall_seconds", KEY_SUM, "s", "during which compute stands still"},
    {"stalls", KEY_OTHER, "s", "the same by the lane and class that compute waits for"},
    {"submitted", KEY_MEAN, "", "instructions submitted to a GPU"},
    {"submit_cpu_seconds", KEY_SUM, "s", "processor time for submitting them"},
    {"planned_seconds", KEY_SUM, "s", "the plan's time of the step"},
    {"skipped", KEY_OTHER, "", "whether the step changed nothing (its norm is not finite, or nothing is trained)"},
    {"verified", KEY_OTHER, "", "true if the step was computed twice (--verify-every), else absent"},
    {"resumed", KEY_OTHER, "", "true in the first step after a resume, else absent"},
    {"numerics", KEY_OTHER, "", "the numerics key, in the first line of each start and wherever it changes: all that may change a bit"},
    {"updates", KEY_OTHER, "", "beside numerics: settings of the updates (batch, weight_decay, beta1, beta2, eps, clip, ...)"},
    {"eval_loss", KEY_OTHER, "nats/token", "loss on held-out text, where the step is followed by an evaluation"},
    {"eval_tokens", KEY_OTHER, "tokens", "tokens that it predicts"},
    {"eval_bits_per_byte", KEY_OTHER, "bits/byte", "the same loss by bytes of text; null where that is not known"},
    {"eval_loss_by_position", KEY_OTHER, "nats/token", "the same by the least number of tokens that a prediction sees (a power of two)"},
};
/* clang-format on */

int metrics_key_find(const char *name, size_t length, int from)
{
    for (int k = 0; k < METRICS_KEYS; k++) {
        const int i = (from + k) % METRICS_KEYS;
        if (strlen(metrics_keys[i].name) == length && memcmp(metrics_keys[i].name, name, length) == 0)
            return i;
    }
    return -1;
}
