/* Files of token ids made by other programs. Private to this folder.
 *
 * Megatron: NAME.bin has ids; NAME.idx gives their type and where documents end. llm.c: a header of 1,024 bytes with one of two
 * magic numbers; a document begins at each end-of-text (GPT-2) or begin-of-text (Llama 3) token. Other files named .bin have no
 * header: their ids have the size that the settings give, and the file is one document. */
#ifndef LTRAIN_DATA_ID_FILE_H
#define LTRAIN_DATA_ID_FILE_H

#include "base/status.h"

#include <stdint.h>

enum id_format { IDS_NONE, IDS_MEGATRON, IDS_MEGATRON_INDEX, IDS_LLMC, IDS_PLAIN };

struct id_file {
    enum id_format format; /* IDS_NONE: not a file of ids; IDS_MEGATRON_INDEX: an .idx, which has no tokens of its own */
    int width, is_signed;  /* width: bytes of an id, stored least significant byte first */
    int64_t first_byte, tokens;
    int64_t begins;        /* id that each document begins with; -1: there is no such id */
    int64_t *ends, n_ends; /* Megatron's only: numbers of the tokens right behind each document; owned */
};

/* Recognises a file of ids. token_bytes: bytes of an id in files without a header, 2 or 4; 0: not given. ERR_INVALID: the file
 * contradicts its header, or it is a .bin of unknown type. */
enum status id_file_look(const char *path, int token_bytes, struct id_file *out);
void id_file_free(struct id_file *f);
/* Returns the id stored at `at`. */
int64_t id_file_get(const struct id_file *f, const uint8_t *at);
/* Returns the number of the document that has token `at`: the first that ends behind it. */
int64_t id_file_document(const struct id_file *f, int64_t at);

#endif
