/* --lora: adapters of low rank beside linear maps, which are trained while the maps are not (Hu et al. 2021). */
#ifndef LTRAIN_SETTINGS_LORA_H
#define LTRAIN_SETTINGS_LORA_H

#include "base/status.h"

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

enum { LORA_MOST_RANK = 4096, LORA_MOST_ALPHA = 1000000, LORA_TEXT = 8192 };

/* Settings of y = W x + s B (A dropout(x)), A [rank, in], B [out, rank], s = alpha / rank or alpha / sqrt(rank). */
struct lora {
    int rank; /* 0: no adapters */
    double alpha;
    int rank_stabilised;     /* 1: s = alpha / sqrt(rank) (Kalajdzievski 2023) */
    double dropout;          /* share of x that is hidden from A in training; below 1 */
    int no_dropout;          /* 1: dropout 0 was given, which overrides an adapter's own */
    char targets[LORA_TEXT]; /* all-linear; names of modules, separated by commas; or a regular expression of whole names */
    char
        excluded[LORA_TEXT]; /* modules without adapters though they are targets: names, or a regular expression of whole names */
    char layers[LORA_TEXT];  /* numbers of the layers with adapters, separated by commas; "": all */
    char layer_names[LORA_TEXT]; /* regular expressions, separated by commas, of the name in front of a layer's number; "": any */
    char saved[LORA_TEXT];       /* ends of names of modules that are trained whole, separated by commas */
    char ranks[LORA_TEXT], alphas[LORA_TEXT]; /* NAME:NUMBER;...: other values for modules whose names end so */
};

/* Parses "r=16,alpha=32,targets=q_proj,v_proj"; "none": no adapters. An item without '=' belongs to the part before it. Defaults:
 * rank 16, alpha twice the rank, all-linear. where: begins an error's message. */
enum status lora_parse(const char *where, const char *text, struct lora *out);
/* Refuses layers together with a regular expression of targets, and layers-pattern without layers, as PEFT does (ERR_INVALID). */
enum status lora_check_layers(const char *where, const struct lora *x);
/* Returns the text that lora_parse takes, to be freed; NULL: no memory. */
char *lora_text(const struct lora *x);
/* Tells whether a text of `targets` or `excluded` is a regular expression: it has a character that no name has. */
int lora_is_regex(const char *text);
/* Copies the next comma-separated name after *at, which is moved on; returns 0 if there is none. A name that is too long is cut. */
int lora_next_name(const char **at, char *name, size_t bytes);

#endif
