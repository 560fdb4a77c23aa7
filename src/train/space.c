/* Room in the run's directory for the files of the run: checkpoints, the model at its end, its log. */
#include "train/space.h"

#include "base/disk.h"
#include "base/num.h"
#include "base/units.h"
#include "checkpoint/checkpoint.h"
#include "offload/store.h"
#include "settings/curriculum.h"

#include <stdio.h>

#define LINE 1024 /* bytes a line of metrics.jsonl, at most */
/* Most room asked for the log: --steps may only mean "until stopped". Lines that cannot be written are kept and reported
 * (run_log.c). */
#define LOG (1LL << 30)
#define OTHERS (256 << 10) /* config.yaml, plan.txt, plan.json, directories */

/* Multiplies numbers that users give; a product beyond any disk's size is capped. */
static int64_t times(int64_t a, int64_t b)
{
    int64_t product;
    return __builtin_mul_overflow(a, b, &product) ? INT64_MAX / 4 : min_i64(product, INT64_MAX / 4);
}

/* Returns the number of the last step. With --epochs, which planning turns into steps later, returns the most steps that a run
 * may have. */
static int64_t last_step(const struct settings *s)
{
    return s->epochs > 0 ? SETTINGS_MOST_STEPS : s->plan.steps;
}

/* Returns the most steps that are saved after `step`: every save_every-th, the last one, and those before a change of length. */
static int64_t saves_after(const struct settings *s, int64_t step)
{
    int64_t last = last_step(s), changes = 0;
    for (int i = 1; i < curriculum_stretches(s); i++)
        changes += curriculum_first(s, i) > step && curriculum_first(s, i) < last;
    if (s->save_every <= 0)
        return changes;
    return changes + (step >= last ? 1 : (last - 1) / s->save_every - step / s->save_every + 1);
}

/* Computes the room for files beside the existing ones. */
static struct run_space space_of(const struct settings *s, const struct model *m)
{
    struct run_space x = {.checkpoint = checkpoint_bytes(m, s->plan.dtype, s->plan.optim_dtype),
                          .model = checkpoint_export_bytes(m, s->plan.dtype)};
    int64_t step = 0, there = s->resume ? checkpoint_count(s->out, &step) : 0, keep = max_i64(1, s->keep);
    int64_t saves = saves_after(s, step);
    if (saves > 0) /* the oldest is removed once the newest is whole */
        x.checkpoints = max_i64(1, min_i64(there + saves - 1, keep) + 1 - there);
    int64_t at_end = saves > 0 ? max_i64(0, min_i64(there + saves, keep) - there) : 0;
    int64_t texts = model_is_preset(s->model) ? 0 : checkpoint_texts_bytes(s->model) + checkpoint_others_bytes(s->model, m);
    texts += s->tokenizer ? checkpoint_texts_bytes(s->tokenizer) : 0;
    x.model += texts;
    /* the tokenizer's files and other texts are copied when the log begins, so they count with it */
    x.log = min_i64(LOG, times(LINE, max_i64(0, last_step(s) - step) / s->log_every)) + OTHERS + (s->resume ? 0 : texts);
    x.bytes = x.log + max_i64(times(x.checkpoints, x.checkpoint), times(at_end, x.checkpoint) + x.model);
    return x;
}

int64_t run_space_bytes(const struct settings *s, const struct model *m)
{
    return s->plan.machine ? 0 : space_of(s, m).bytes;
}

/* Describes the room: "3 checkpoints of 1.7 MiB (--save-every 4, --keep 2), the model at the end (584 KiB), log and settings (268
 * KiB)". */
static void describe(const struct settings *s, const struct run_space *x, char *text, size_t size)
{
    char a[32], b[32], steps[64] = "";
    int n = 0;
    if (x->log > x->bytes - x->log)
        snprintf(steps, sizeof steps, " for --steps %lld", (long long)s->plan.steps);
    if (x->checkpoints > 0)
        n = snprintf(text, size, "%lld checkpoint%s of %s (--save-every %lld, --keep %lld and one that is being written), ",
                     (long long)x->checkpoints, x->checkpoints == 1 ? "" : "s", units_format_bytes(x->checkpoint, a),
                     (long long)s->save_every, (long long)s->keep);
    snprintf(text + n, size - (size_t)n, "the model at the end (%s), log and settings (%s%s)", units_format_bytes(x->model, a),
             units_format_bytes(x->log, b), steps);
}

enum status run_space_check(const struct settings *s, const struct model *m)
{
    struct disk disk;
    char what[512], need[32], room[64], less[96] = "";
    struct run_space x = space_of(s, m);
    if (s->plan.machine || disk_look(s->out, &disk) != 0)
        return OK;
    disk.free_bytes += store_dead_bytes(s->out); /* file of a killed run, which is removed when this run begins */
    if (disk_room(&disk) >= x.bytes)
        return OK;
    struct settings fewer = *s;
    fewer.keep = 1;
    if (x.checkpoints > 1 && space_of(&fewer, m).bytes <= disk_room(&disk))
        snprintf(less, sizeof less, "; --keep 1 would need %s", units_format_bytes(space_of(&fewer, m).bytes, need));
    describe(s, &x, what, sizeof what);
    return status_fail(ERR_NOFIT, "%s needs %s for %s, and %s: free some%s%s", s->out, units_format_bytes(x.bytes, need), what,
                       disk_say_room(&disk, room), s->resume ? "" : ", or give another --out", less);
}
