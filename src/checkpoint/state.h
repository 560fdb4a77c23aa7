/* Between a session's state and a checkpoint's tensors. Private to this folder. */
#ifndef LTRAIN_CHECKPOINT_STATE_H
#define LTRAIN_CHECKPOINT_STATE_H

#include "checkpoint/shards.h"
#include "engine/session_state.h"

enum { STATE_NAME = 128 };
/* A parameter's tensor of that kind of state (up to STATE_V). */
void state_tensor_name(char name[STATE_NAME], enum state_kind kind, const struct model_param *p);

/* ERR_DIVERGED names the first of the parameter's elements [first, first + n) that is NaN or infinite. */
enum status state_check_finite(enum state_kind kind, const struct model_param *p, int64_t first, int64_t n, const float *data);

/* Bytes that a checkpoint of it takes at most. */
int64_t state_bytes(const struct session *s);
/* By one rank: the files DIR/ckpt_file_names[0 .. n_files) without data, synced. With others (of a form) tensors have the names that
 * multimodal models' files give the text model's. */
enum status state_create(struct session *s, const char *dir, int n_files, const struct shard_form *form);
/* Called by all ranks: writes the data, every rank its own pieces, and syncs it. dir: marked by rank 0 (ckpt_mark). All return
 * the same. ERR_DIVERGED names a tensor that is not finite. */
enum status state_write(struct session *s, const char *dir, uint64_t mark, int n_files, const struct shard_form *form);
/* By one rank: the model's files that were written with that limit into a directory where no others stay. */
enum status state_move(struct session *s, const char *from, const char *to, const struct shard_form *form);
/* Called by all ranks: checks config.json, names and shapes against the session's model, then loads. Of files known to be whole.
 * All return the same. */
enum status state_read(struct session *s, const char *dir);

#endif
