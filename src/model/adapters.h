/* Which linear maps have adapters, of which rank, and what is trained beside them, as PEFT decides it. Private to model. */
#ifndef LTRAIN_MODEL_ADAPTERS_H
#define LTRAIN_MODEL_ADAPTERS_H

#include "base/status.h"
#include "settings/lora.h"

struct adapter_rules;

/* l: borrowed. ERR_INVALID: a regular expression is none. */
enum status adapter_rules_create(const struct lora *l, struct adapter_rules **out);
void adapter_rules_destroy(struct adapter_rules *r); /* NULL is fine */

/* Of the map of a module, "model.layers.0.self_attn.q_proj": the rank, 0 if it has no adapter; and alpha / rank, or what stands
 * for it. */
int adapter_rank(const struct adapter_rules *r, const char *module);
float adapter_scale(const struct adapter_rules *r, const char *module);
/* Whether targets may name head and embedding: all linear maps are those of layers. */
int adapter_takes_ends(const struct adapter_rules *r);
/* Notes a module that has an adapter. Once all are: the first pattern that gives none of them its number, as "rank-pattern=q_proj:32"; 0:
 * there is no such pattern. */
void adapter_note_module(struct adapter_rules *r, const char *module);
int adapter_idle_pattern(const struct adapter_rules *r, char *text, size_t bytes);
/* Whether a parameter belongs to a module to be saved: its name, or that of a module around it, ends with one of theirs, and be it
 * in the middle of a word. */
int adapter_saves(const struct adapter_rules *r, const char *param);
/* The same of one name. */
int adapter_saved_by(const char *ending, const char *param);
/* Returns whether `exclude-modules` names the module. */
int adapter_excludes(const struct adapter_rules *r, const char *module);
/* Whether a name of the targets is the module's. */
int adapter_targeted_by(const char *name, const char *module);

#endif
