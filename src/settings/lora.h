/* What --lora says: adapters of low rank beside linear maps, which are trained while the maps are not (Hu et al. 2021). */
#ifndef LTRAIN_SETTINGS_LORA_H
#define LTRAIN_SETTINGS_LORA_H

#include "base/status.h"

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

enum { LORA_MOST_RANK = 4096, LORA_MOST_ALPHA = 1000000, LORA_TEXT = 8192 };

/* y = W x + s B (A dropout(x)), A [rank, in], B [out, rank], s = alpha / rank, or alpha / sqrt(rank). */
struct lora {
    int rank;               /* 0: no adapters */
    double alpha;
    int rank_stabilised;    /* s = alpha / sqrt(rank) (Kalajdzievski 2023) */
    double dropout;         /* share of x that A does not see while it is trained; below 1 */
    int no_dropout;         /* 0 was said: an adapter's own does not count */
    char targets[LORA_TEXT]; /* all-linear; names of modules, separated by commas; or a regular expression of whole names */
    char excluded[LORA_TEXT]; /* modules that have none though they are targets: names, or a regular expression of whole names */
    char layers[LORA_TEXT];   /* numbers of the layers that have any, separated by commas; "": all */
    char layer_names[LORA_TEXT]; /* regular expressions, separated by commas, of the name in front of a layer's number; "": any */
    char saved[LORA_TEXT];   /* ends of names of modules that are trained as they are, separated by commas */
    char ranks[LORA_TEXT], alphas[LORA_TEXT]; /* NAME:NUMBER;...: others for modules whose names end so */
};

/* "r=16,alpha=32,targets=q_proj,v_proj"; "none": no adapters. A part without '=' belongs to the one before. What is not said:
 * rank 16, alpha twice the rank, all-linear. where: starts the error sentence. */
enum status lora_parse(const char *where, const char *text, struct lora *out);
/* ERR_INVALID: its layers go with no regular expression of targets, and their names with no layers, as in PEFT. */
enum status lora_check_layers(const char *where, const struct lora *x);
/* As lora_parse takes it; to be freed. NULL: no memory. */
char *lora_text(const struct lora *x);
/* Returns whether a text of `targets` or `excluded` is a regular expression: it has a character that no name has. */
int lora_is_regex(const char *text);
/* The next of names separated by commas, after *at, which it moves on; 0: there is none. A longer one is cut. */
int lora_next_name(const char **at, char *name, size_t bytes);

#endif
