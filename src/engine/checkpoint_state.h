/* Streams between a session's state and a checkpoint's tensors. Private to this folder. */
#ifndef LTRAIN_ENGINE_CHECKPOINT_STATE_H
#define LTRAIN_ENGINE_CHECKPOINT_STATE_H

#include "engine/session.h"

/* Files written and synced; *xxh3: of the whole file. */
enum status state_write_model(struct session *s, const char *path, uint64_t *xxh3);
enum status state_write_optimizer(struct session *s, const char *path, uint64_t *xxh3);
/* Bytes of tensor data that the two files hold. */
int64_t state_bytes(const struct session *s);
/* Checks config.json, names and shapes against the session's model, then loads. Of files known to be whole. */
enum status state_read(struct session *s, const char *dir);

#endif
