/* Conversion between a session's state and a checkpoint's tensors. Private to this folder. */
#ifndef LTRAIN_CHECKPOINT_STATE_H
#define LTRAIN_CHECKPOINT_STATE_H

#include "checkpoint/shards.h"
#include "engine/session_state.h"

enum { STATE_NAME = PARAM_NAME + 32 };
/* Returns the prefix of the names of tensors with parameters' state of that kind (up to STATE_V). */
const char *state_prefix(enum state_kind kind);
/* Writes the name of the tensor with the state that belongs to a tensor of a parameter. */
void state_tensor_name(char name[STATE_NAME], enum state_kind kind, const char *tensor);

/* Makes sure that elements [first, first + n) of a parameter's state are finite. ERR_DIVERGED names the first that is not. */
enum status state_check_finite(enum state_kind kind, const struct model_param *p, int64_t first, int64_t n, const float *data);

/* Returns the most bytes that a checkpoint of the session takes. */
int64_t state_bytes(const struct session *s);
/* Creates the files DIR/ckpt_file_names[0 .. n_files) without data, and syncs them (one rank only). If the form has `others`
 * of a multimodal model, tensors get the names that its files use for the text model. */
enum status state_create(struct session *s, const char *dir, int n_files, const struct shard_form *form);
/* Writes the data, every rank its own pieces, and syncs it. dir: marked by rank 0 (ckpt_mark). All ranks call it and get the same
 * status. ERR_DIVERGED names a tensor that is not finite. */
enum status state_write(struct session *s, const char *dir, uint64_t mark, int n_files, const struct shard_form *form);
/* Moves the model's files that were written in that form into a directory, and removes other files of a model there (one rank
 * only). */
enum status state_move(struct session *s, const char *from, const char *to, const struct shard_form *form);
/* Checks config.json, names and shapes against the session's model, then loads. The files must be known to be whole. All ranks
 * call it and get the same status. */
enum status state_read(struct session *s, const char *dir);

#endif
