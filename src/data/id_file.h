/* Files of token ids that somebody else has made. Private to this folder.
 *
 * Megatron: NAME.bin is ids, NAME.idx says of which type, and where documents end. llm.c: a header of 1,024 bytes with one of two magic
 * numbers; a document begins at each end-of-text (GPT-2) or begin-of-text (Llama 3) token. Others named .bin have no header: their
 * ids have the size that the settings give, and the file is one document. */
#ifndef LTRAIN_DATA_ID_FILE_H
#define LTRAIN_DATA_ID_FILE_H

#include "base/status.h"

#include <stdint.h>

enum id_format { IDS_NONE, IDS_MEGATRON, IDS_MEGATRON_INDEX, IDS_LLMC, IDS_PLAIN };

struct id_file {
    enum id_format format; /* IDS_NONE: it is no such file. An index has no tokens of its own */
    int width, is_signed;  /* bytes of an id, the little end first */
    int64_t first_byte, tokens;
    int64_t begins;        /* the id that a document begins with; -1: none */
    int64_t *ends, n_ends; /* Megatron's: token behind each document; owned */
};

/* token_bytes: of ids in files without a header, 2 or 4; 0: none is given. ERR_INVALID: it is not what its header says, or a .bin
 * of which nobody knows the type. */
enum status id_file_look(const char *path, int token_bytes, struct id_file *out);
void id_file_free(struct id_file *f);
/* The id at `at`. */
int64_t id_file_get(const struct id_file *f, const uint8_t *at);
/* The first document that ends behind token `at`. */
int64_t id_file_document(const struct id_file *f, int64_t at);

#endif
