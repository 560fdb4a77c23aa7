/* Checkpoints: named tensors as global element ranges, never one run's layout, so that any placement can load them.
 *
 * RUN/checkpoints/step-000100/
 *   model.safetensors, config.json   parameters under Hugging Face names (dtype of the run)
 *   optimizer.safetensors            "master.NAME" (bf16 runs), "m.NAME", "v.NAME" in fp32, trained parameters only
 *   manifest.json                    step, cursor, updates, seed, numerics key, model facts, and every file's size and xxh3; written last
 * RUN/checkpoints/latest             the newest whole one's name
 *
 * Protocol (kill -9 at any moment leaves the newest whole checkpoint loadable): everything is written and synced in a directory step-N.partial, manifest last;
 * the directory is renamed; then `latest` is replaced by write-sync-rename; then older ones than the last `keep` and dead .partial directories are removed. */
#ifndef LTRAIN_ENGINE_CHECKPOINT_H
#define LTRAIN_ENGINE_CHECKPOINT_H

#include "engine/session.h"

struct checkpoint_info {
    int64_t step;    /* steps done */
    uint64_t cursor; /* training sequences taken */
    int64_t updates; /* optimizer steps done (skipped ones do not count) */
    uint64_t seed;
    char numerics[256]; /* the numerics key */
};

/* Nothing may be pending (flush first) and nothing running. keep >= 1. Memory: one group. */
enum status checkpoint_save(struct session *s, const char *run, const struct checkpoint_info *info, int keep);
/* The newest whole checkpoint of a run: reads `latest`; if that one is missing or damaged, the newest other whole one, and *note says so (else it is
 * empty). ERR_INVALID if there is none. path: its directory. */
enum status checkpoint_find(const char *run, char *path, int path_size, struct checkpoint_info *info, char *note, int note_size);
/* Loads parameters, masters and moments into the session's homes, whatever the placement. Checks the model (names, shapes; one sentence naming the first difference) and
 * every file's size and xxh3 before anything is loaded: ERR_CORRUPT naming the file. dtype may differ from the run's (masters are the truth). */
enum status checkpoint_load(struct session *s, const char *path);
/* DIR: config.json and model.safetensors as transformers reads them. Creates DIR; atomic as far as a directory can be (files are renamed into place). */
enum status checkpoint_export(struct session *s, const char *dir);

#endif
