/* Marks of rows and messages that say whether they are trained. Private to this folder. */
#ifndef LTRAIN_CHAT_MARKS_H
#define LTRAIN_CHAT_MARKS_H

#include "chat/conversation.h"

/* Finds the mark of m, message number i. ERR_INVALID: a mark has an unknown meaning, or belongs to a part of the message. */
enum status marks_of_message(const struct chat_conversation *c, size_t i, const json_t *m, enum chat_mark *out);

#endif
