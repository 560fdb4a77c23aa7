/* Stacks of experts' matrices that files have side by side: B of adapters, as PEFT writes them (STACK_BESIDE). */
#ifndef LTRAIN_ENGINE_STACKS_H
#define LTRAIN_ENGINE_STACKS_H

#include "data/safetensors.h"
#include "model/model.h"

/* Tells whether a tensor of the file has the shape that a checkpoint gives the stack: one matrix below the other. */
int stack_is_kept(const struct st_file *f, const char *name, const struct model_param *p);
/* Reads elements [first, first + n) of the stack, in memory's order, in fp32 or bf16. *finite: number of leading finite values. */
enum status stack_read(struct st_file *f, const char *name, const struct model_param *p, int64_t first, int64_t n,
                       enum dtype type, void *data, int64_t *finite);
/* Brings a whole stack from memory's order into the file's. */
void stack_turn(const struct model_param *p, const float *memory, float *file);

#endif
