/* Chats as models read them: a template in Jinja and a conversation give text, where each byte of it comes from, and which
 * bytes are trained.
 *
 * A template is what transformers' apply_chat_template takes; the interpreter knows what chat templates use (docs/data.md lists
 * it) and refuses the rest by line and construct. Nothing here knows tokens: a caller tokenizes the text once, without adding
 * special tokens, looks for added tokens in bytes of the template only, and trains a token if any of its bytes is supervised.
 *
 * Errors are ERR_INVALID with one sentence that names the template and its line, or the conversation (file and line), unless
 * said otherwise. Templates and conversations may be read from several threads once made. */
#ifndef LTRAIN_CHAT_CHAT_H
#define LTRAIN_CHAT_CHAT_H

#include "base/status.h"

#include <jansson.h>
#include <stddef.h>
#include <stdint.h>

struct chat_template;
struct chat_conversation;
struct chat_options;

/* The template in source[0, n), UTF-8. name: what messages call it ("models/x/chat_template.jinja"). */
enum status chat_template_parse(const char *source, size_t n, const char *name, struct chat_template **out);
#define CHAT_MORE_TEMPLATES "additional_chat_templates" /* directory of templates by name */
#define CHAT_TOOL_TEMPLATE "tool_use"                   /* name of the template of conversations with tools */

/* Loads a Hugging Face directory's template, as transformers does: the one in chat_template.jinja is called default, those in
 * additional_chat_templates/NAME.jinja NAME; where there is no such file, `chat_template` of tokenizer_config.json counts (a string, or a
 * list of {name, template}). Default is taken, and tool_use, if it is there, for conversations with tools (chat_template_for_tools);
 * with the special tokens that tokenizer_config.json names. A directory without a template is an error that says how to give one. */
enum status chat_template_load(const char *dir, struct chat_template **out);
/* Loads the directory's template of that name, for all conversations; *out NULL: it has none. */
enum status chat_template_find(const char *dir, const char *name, struct chat_template **out);
/* Returns the template of conversations with tools, where that is another one; NULL: the template is for all. */
const struct chat_template *chat_template_for_tools(const struct chat_template *t);
/* Returns the sentence why the template of conversations with tools cannot be read, though the default can; NULL: nothing is wrong. */
const char *chat_template_tools_error(const struct chat_template *t);
/* The tokens that a directory's tokenizer_config.json and special_tokens_map.json name and the template has not yet. */
enum status chat_template_read_tokens(struct chat_template *t, const char *dir);
/* The template in a file, without tokens. */
enum status chat_template_open(const char *path, struct chat_template **out);
/* One of ltrain's own: chatml, llama3, mistral, gemma, phi, zephyr, ... with its family's tokens. */
enum status chat_template_builtin(const char *name, struct chat_template **out);
/* The names of the latter, ended by NULL. */
const char *const *chat_template_builtins(void);
/* A variable of every render that stands for a token ("eos_token", "</s>"): counts as the template's text. */
enum status chat_template_set_token(struct chat_template *t, const char *variable, const char *token);
/* The token that a variable stands for, or NULL. */
const char *chat_template_token(const struct chat_template *t, const char *variable);
/* The template's text, and its bytes. */
const char *chat_template_source(const struct chat_template *t, size_t *n);
/* Whether it writes the text of contents that are lists of parts: others leave it out, or write the list as Python would print it. Found
 * by a conversation of its own. */
int chat_template_takes_parts(const struct chat_template *t, const struct chat_options *options);
/* In which forms it writes the arguments of calls as JSON, or by their members: CHAT_ARGUMENTS_*. Found like the former; 0: it writes none. */
enum { CHAT_ARGUMENTS_OBJECTS = 1, CHAT_ARGUMENTS_TEXTS = 2 };
unsigned chat_template_takes_arguments(const struct chat_template *t, const struct chat_options *options);
void chat_template_destroy(struct chat_template *t);

/* One conversation from a line of a .jsonl file:
 *   {"messages": [{"role", "content", ...}], "tools": [...], "chat_template_kwargs": {...}}
 *   {"conversations": [{"from": "human"|"gpt"|"system"|"tool"..., "value"}], "system", "tools"}
 *   {"prompt", "completion"}          strings, or lists of messages
 *   {"instruction", "input", "output", "system", "history"}          Alpaca
 * A key that is null counts as not given. Messages of a prompt, and those with a mark ("weight": 0, "train": false, ...), are read but not trained. A message's content is a string,
 * a list of parts ({"type": "text", "text"}) or null. file and line are for messages. */
enum status chat_read(const char *json, size_t n, const char *file, int64_t line, struct chat_conversation **out);
enum status chat_from_json(const json_t *object, const char *file, int64_t line, struct chat_conversation **out);
/* Whether an object's keys are those of a conversation: a corpus tells rows of chats from rows of text by it. */
int chat_is_conversation(const json_t *object);
/* Whether an object has that key, and not as null, as rows of several kinds in one table have it. */
int chat_has(const json_t *object, const char *key);
/* What a row holds, for marks that mean other things in others. */
enum chat_row_kind { CHAT_ROW_TEXT, CHAT_ROW_CHAT, CHAT_ROW_IDS };
/* Refuses a row that says that it is not trained, or trained in a way that is not known (weight, train, kto_tag, loss_mask, ...); lists of
 * rows of ids are the caller's to look at. ERR_INVALID names file and line. */
enum status chat_check_row(const json_t *row, enum chat_row_kind kind, const char *file, int64_t line);
/* Contents that are lists of parts become strings: for templates that take no lists. ERR_NOMEM. */
enum status chat_join_parts(struct chat_conversation *c);
/* Arguments of calls that are the text of a JSON object become objects, of a template that `takes` (chat_template_takes_arguments) those;
 * *changed of them. The conversation must be nobody else's. ERR_INVALID: arguments that the template would write as no JSON. */
enum status chat_take_arguments(struct chat_conversation *c, unsigned takes, int64_t *changed);
/* Says whether a conversation has tools; an empty list is none. */
int chat_has_tools(const struct chat_conversation *c);
int64_t chat_messages(const struct chat_conversation *c);
const char *chat_role(const struct chat_conversation *c, int64_t message);
/* Whether a message is an assistant's and not marked as only to be read. */
int chat_is_trained(const struct chat_conversation *c, int64_t message);
/* The last such message, or -1. */
int64_t chat_last_trained(const struct chat_conversation *c);
void chat_destroy(struct chat_conversation *c);

enum chat_train {
    CHAT_TRAIN_ASSISTANT, /* what assistants say in every turn, and the token that ends it */
    CHAT_TRAIN_LAST,      /* only the last turn of an assistant */
    CHAT_TRAIN_ALL,       /* every byte */
};

struct chat_options {
    int add_generation_prompt;
    enum chat_train train;
    const json_t *variables;     /* an object of further variables ("enable_thinking": false), or NULL; a conversation's own
                                  * chat_template_kwargs win */
    const char *const *specials; /* the tokenizer's special tokens, ended by NULL: what ends a turn is one of them. NULL: the
                                  * template's tokens and what looks like one (<|...|>, </s>, <end_of_turn>) */
    int64_t now;                 /* seconds since 1970, UTC, of strftime_now; 0: now, local time */
    int strict;                  /* a message of an assistant that is trained and of which the template writes nothing is an error, also
                                  * where {% generation %} blocks say what is trained, or where all is */
    int64_t messages;            /* only these first ones are read, as if the conversation ended there; 0: all */
    size_t max_bytes;            /* memory of one render, 0: 1 GiB; more is an error */
    int64_t max_steps;           /* of the interpreter; 0: 20 million and 20,000 a message, two seconds */
};

/* Origins of bytes: the template (and its tokens); data that belong to no message (tools, variables); message i. */
enum { CHAT_FROM_TEMPLATE = -1, CHAT_FROM_DATA = -2 };

/* Bytes [first, end) of one origin; spans are in order, touch, and cover the text. said: what an assistant said (content,
 * reasoning, tool calls), not its role or name. */
struct chat_span {
    size_t first, end;
    int64_t origin;
    int said;
};

struct chat_range {
    size_t first, end;
};

struct chat_text {
    char *bytes; /* UTF-8, [n], and a 0 */
    size_t n;
    struct chat_span *spans;
    size_t n_spans;
    struct chat_range *supervised; /* in order, apart; none is empty */
    size_t n_supervised;
    struct chat_range *ends; /* the token that ends each trained turn, of those that one ends */
    size_t n_ends;
    int from_generation;       /* the template has {% generation %} blocks, which say what is supervised */
    int64_t reasoning_dropped; /* trained messages of assistants whose reasoning, in a member of its own or as <think> ... </think> in the
                                * content, the template leaves out */
    int64_t messages_dropped;  /* messages of which the template writes nothing, though they say something */
    int64_t calls_dropped;     /* messages whose calls of tools it leaves out */
    int64_t contents_dropped;  /* messages of assistants whose calls or reasoning it writes, and not what they say beside */
    int64_t tools_dropped;     /* 1: the conversation's tools, of which it writes nothing */
    int64_t unended;           /* supervised turns after which no token that ends a turn was found */
    int64_t untrained;         /* turns that would be supervised, and of which nothing is found, or a part stands outside of {% generation %} */
    int64_t otherwise;         /* supervised turns that the whole conversation begins in another way than a generation prompt would */
    int64_t typed;             /* messages with the text of special tokens, or the template's own, which somebody wrote: text here */
    int64_t empty;             /* trained messages that say nothing */
    int64_t other_roles;       /* messages of no usual role */
};

/* ERR_INVALID also: nothing is supervised, or a message of an assistant is not in the text (the template is another model's); calls of
 * tools that are all that a message says are counted then, and its turn is not supervised.
 * With add_generation_prompt nothing need be supervised. Destroy what comes out; on an error it is empty. */
enum status chat_render(const struct chat_template *t, const struct chat_conversation *c, const struct chat_options *options,
                        struct chat_text *out);
void chat_text_destroy(struct chat_text *text);

#endif
