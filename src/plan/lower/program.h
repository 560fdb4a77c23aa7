/* Lowering: from a model's layer graph to a flat list of instructions, in compute order. Fetches stand just before their use,
 * write-backs just after their producer.
 *
 * With several ranks every rank has the same program; the ranks differ in the tokens and shards that they hold. */
#ifndef LTRAIN_PLAN_LOWER_PROGRAM_H
#define LTRAIN_PLAN_LOWER_PROGRAM_H

#include "model/model.h"
#include "plan/lower/strategy.h"
#include "program/program.h"

/* Duties of a program of the set, bits of an int. */
enum program_duty {
    DUTY_UPDATE = 1, /* a pending update, interleaved with the forward pass (or alone) */
    DUTY_FORWARD = 2,
    DUTY_BACKWARD = 4,
    DUTY_FIRST = 8, /* the first micro-batch of a step: gradients start anew */
    DUTY_LAST = 16, /* the last micro-batch of a step: the gradient norm follows */
    /* Pipelines only: halves of a program with a forward and a backward pass (halves.h); an end of the model, with DUTY_FIRST and
     * DUTY_LAST as for gradients; the messages alone of a half that a stage leaves out (PASS, stage.h) */
    DUTY_HALF_FORWARD = 32,
    DUTY_HALF_BACKWARD = 64,
    DUTY_EMBED = 128,
    DUTY_HEAD = 256,
    DUTY_EMBED_GRAD = 512,
    DUTY_PASS_FORWARD = 1024,
    DUTY_PASS_BACKWARD = 2048,
    DUTY_NEXT = 4096,     /* the last slice of each sequence but the first: gradients of keys and values start anew */
    DUTY_EVALUATE = 8192, /* with DUTY_HEAD: losses alone, of tokens that are not trained */
};

/* Persistent host buffers of a program, by index: the engine fills inputs before the program and reads outputs after it. */
struct io_buffers {
    int tokens, targets, positions, lo[MODEL_MASKS], hi[MODEL_MASKS], inv_freq, record, norm, loss;
    int index; /* numbers of the rows among kept keys: in a cache (decode.h), or of a slice in its sequence; -1: no buffer */
    int last_row, logits; /* programs with a cache only; they have no targets, norm and loss */
    int numbers;          /* numbers of the tokens within the whole sequence, for masks of dropout; -1: no buffer */
    int own_positions;    /* positions of the stream's rows, if slices count experts' tokens; -1: no buffer */
    int end_numbers;      /* the same of the head's rows, if the head has an adapter; -1: no buffer */
    int slots;            /* each token's row among those of the embedding that are trained by themselves; -1: no buffer */
    int columns;          /* tokens of the head's rows that are trained by themselves; -1: no buffer */
    int links;            /* links of rows (enum row_link), for recurrences; -1: no buffer */
    int order;            /* pieces of a shared sequence by tokens (seq_piece_order), for recurrences; -1: no buffer */
    int load, plain, plain_own, plain_stages; /* counts of experts' tokens (load.h); -1: no buffer */
    int each;                                 /* every token's loss, written by programs without a backward pass; -1: no buffer */
    int weights; /* every token's weight in the loss, read by programs with a backward pass; -1: no buffer */
};

/* Lowers one program of the set. Persistent buffers come first and are the same for all duties. */
enum status lower_program(const struct model *m, const struct strategy *s, int duties, struct io_buffers *io,
                          struct program **out);
/* Finds the bytes of the persistent inputs and outputs (struct io_buffers) of programs without a cache and without stages. No
 * placement changes them. */
enum status lower_io_bytes(const struct model *m, const struct strategy *s, int64_t out[TIERS]);

#endif
