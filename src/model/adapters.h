/* PEFT's rules for which linear maps have adapters, of which rank, and what is trained beside them. Private to model. */
#ifndef LTRAIN_MODEL_ADAPTERS_H
#define LTRAIN_MODEL_ADAPTERS_H

#include "base/status.h"
#include "settings/lora.h"

struct adapter_rules;
struct model_param;

enum { ADAPTED_NAME = 128 };
#define TOKEN_ROWS_TENSOR ".token_adapter.trainable_tokens_delta" /* end of the name of a module's rows of tokens */
/* Writes the name of the module whose adapter's A the parameter is; returns 0 if it is no A. A stack of experts is a module, too:
 * model.layers.0.mlp.experts.down_proj. */
int adapter_module_of(const struct model_param *p, char module[ADAPTED_NAME]);

/* Compiles the rules; `l` is borrowed. ERR_INVALID: a regular expression is invalid. */
enum status adapter_rules_create(const struct lora *l, struct adapter_rules **out);
void adapter_rules_destroy(struct adapter_rules *r); /* NULL is fine */

/* Returns the rank (0: no adapter), alpha or the scale (alpha / rank, or its replacement) of the adapter of a module such as
 * "model.layers.0.self_attn.q_proj". */
int adapter_rank(const struct adapter_rules *r, const char *module);
double adapter_alpha(const struct adapter_rules *r, const char *module);
float adapter_scale(const struct adapter_rules *r, const char *module);
/* Tells whether targets name the module otherwise than by all-linear, which takes the maps of layers but their routers. */
int adapter_is_named(const struct adapter_rules *r, const char *module);
/* Notes a module that has an adapter. After all are noted, adapter_idle_pattern writes the first pattern that is used for no
 * module ("rank-pattern=q_proj:32"), or returns 0 if all patterns are used. */
void adapter_note_module(struct adapter_rules *r, const char *module);
int adapter_idle_pattern(const struct adapter_rules *r, char *text, size_t bytes);
/* Tells whether a parameter belongs to a module to be saved. The parameter's name, or the name of a module around it, must end
 * with a listed name, even in the middle of a word. */
int adapter_saves(const struct adapter_rules *r, const char *param);
/* Applies the rule of adapter_saves for one name. */
int adapter_saved_by(const char *ending, const char *param);
/* Tells whether `exclude-modules` names the module. */
int adapter_excludes(const struct adapter_rules *r, const char *module);
/* Tells whether `name`, from the list of targets, names the module. */
int adapter_targeted_by(const char *name, const char *module);

#endif
