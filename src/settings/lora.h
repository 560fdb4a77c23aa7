/* --lora: adapters of low rank beside linear maps, which are trained while the maps are not (Hu et al. 2021). */
#ifndef LTRAIN_SETTINGS_LORA_H
#define LTRAIN_SETTINGS_LORA_H

#include "base/status.h"

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

enum { LORA_MOST_RANK = 4096, LORA_MOST_ALPHA = 1000000, LORA_MOST_TOKENS = 1 << 16, LORA_TEXT = 8192 };

/* Settings of y = W x + s B (A dropout(x)), A [rank, in], B [out, rank], s = alpha / rank or alpha / sqrt(rank). */
struct lora {
    int rank; /* 0: no adapters */
    double alpha;
    int rank_stabilised; /* 1: s = alpha / sqrt(rank) (Kalajdzievski 2023) */
    double dropout;      /* dropout's rate: share of the elements of x that A does not see in training; below 1 */
    int modules_only;    /* 1: names came from PEFT's target_modules, which never mean stacks (adapter_config_fit) */
    int no_dropout;      /* 1: dropout=0 was given, which overrides the rate of a loaded adapter */
    /* modules with adapters: names and all-linear, separated by commas, or a regular expression that matches whole names */
    char targets[LORA_TEXT];
    /* targets that get no adapters after all: names, or a regular expression that matches whole names */
    char excluded[LORA_TEXT];
    char layers[LORA_TEXT]; /* numbers of the layers with adapters, separated by commas; "": all */
    /* regular expressions, separated by commas, for the part of a module's name before the layer's number; "": any */
    char layer_names[LORA_TEXT];
    char saved[LORA_TEXT];                    /* ends of names of modules that are trained whole, separated by commas */
    char ranks[LORA_TEXT], alphas[LORA_TEXT]; /* NAME:NUMBER;...: other ranks and alphas for modules whose names end with NAME */
    /* tokens whose rows are parameters of their own, in order: "3,40-79", of the embedding, or "lm_head:7,9,embed_tokens:3" */
    char tokens[LORA_TEXT];
    /* 1: an adapter's rows are put into the base's matrices when weights are read, as for models that are not trained */
    int tokens_put;
};

/* Neighbours of a list of tokens: [first, end) of a module's rows. */
struct lora_tokens {
    char module[64]; /* "": none is named, so the embedding */
    int64_t first, end;
};

/* Parses "r=16,alpha=32,targets=q_proj,v_proj"; "none": no adapters. An item without '=' continues the value before it. Defaults:
 * rank 16, alpha twice the rank, all-linear. where: begins an error's message. */
enum status lora_parse(const char *where, const char *text, struct lora *out);
/* Refuses layers together with a regular expression of targets, and layers-pattern without layers, as PEFT does (ERR_INVALID). */
enum status lora_check_layers(const char *where, const struct lora *x);
/* Returns *x as a text that lora_parse takes, to be freed; NULL: no memory. */
char *lora_text(const struct lora *x);
/* Tells whether a text of `targets` or `excluded` is a regular expression: it has a character that names of modules never have. */
int lora_is_regex(const char *text);
/* Tells whether the name stands for all maps of layers. */
int lora_is_all(const char *name);
/* Tells whether targets are a list that has such a name. */
int lora_takes_all(const struct lora *x);
/* Copies the next comma-separated name after *at, which is moved on; returns 0 if there is none. A name that is too long is cut. */
int lora_next_name(const char **at, char *name, size_t bytes);
/* Reads the next item of a checked text of `tokens` after *at, which is moved on; an item without a module's name keeps that in
 * out->module, which is "" at first. Returns 0 if there is none. */
int lora_next_tokens(const char **at, struct lora_tokens *out);
/* Tells whether two checked texts of `tokens` list the same rows in the same order, neighbours written either way. */
int lora_same_tokens(const char *a, const char *b);

#endif
