/* Chats as models read them: a Jinja template and a conversation give text, the origin of each of its bytes, and the bytes that
 * are trained.
 *
 * Templates are those of transformers' apply_chat_template; the interpreter knows the constructs of chat templates (docs/data.md
 * lists them) and refuses others by line and name. Nothing here knows tokens: a caller tokenizes the text once, without adding
 * special tokens, looks for added tokens in bytes of the template only, and trains a token if any of its bytes is supervised.
 *
 * Errors are ERR_INVALID with one sentence that names the template and its line, or the conversation (file and line), unless said
 * otherwise. Templates and conversations may be read from several threads once made. */
#ifndef LTRAIN_CHAT_CHAT_H
#define LTRAIN_CHAT_CHAT_H

#include "base/status.h"

#include <jansson.h>
#include <stddef.h>
#include <stdint.h>

struct chat_template;
struct chat_conversation;
struct chat_options;

/* Parses the template in source[0, n), UTF-8. name: its name in messages ("models/x/chat_template.jinja"). */
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
/* Adds the tokens that a directory's tokenizer_config.json and special_tokens_map.json name and the template does not have yet. */
enum status chat_template_read_tokens(struct chat_template *t, const char *dir);
/* Reads the template in a file, without tokens. */
enum status chat_template_open(const char *path, struct chat_template **out);
/* Makes one of ltrain's own templates (chatml, llama3, mistral, gemma, phi, zephyr, ...) with its family's tokens. */
enum status chat_template_builtin(const char *name, struct chat_template **out);
/* Returns the names of these templates, ended by NULL. */
const char *const *chat_template_builtins(void);
/* Sets a variable of every render that stands for a token ("eos_token", "</s>"); its text counts as the template's. */
enum status chat_template_set_token(struct chat_template *t, const char *variable, const char *token);
/* Returns the token that a variable stands for, or NULL. */
const char *chat_template_token(const struct chat_template *t, const char *variable);
/* Returns the template's text; *n: its bytes. */
const char *chat_template_source(const struct chat_template *t, size_t *n);
/* Tells, by rendering a conversation of its own, whether the template writes the text of contents that are lists of parts. Other
 * templates leave it out, or write the list as Python would print it. */
int chat_template_takes_parts(const struct chat_template *t, const struct chat_options *options);
/* Finds, by rendering, the forms of call arguments that the template writes as JSON or by their members: CHAT_ARGUMENTS_*; 0:
 * none. */
enum { CHAT_ARGUMENTS_OBJECTS = 1, CHAT_ARGUMENTS_TEXTS = 2 };
unsigned chat_template_takes_arguments(const struct chat_template *t, const struct chat_options *options);
void chat_template_destroy(struct chat_template *t);

/* Reads one conversation from a line of a .jsonl file:
 *
 * {"messages": [{"role", "content", ...}], "tools": [...], "chat_template_kwargs": {...}}
 *
 * {"conversations": [{"from": "human"|"gpt"|"system"|"tool"..., "value"}], "system", "tools"}
 *
 * {"prompt", "completion"}: strings, or lists of messages
 *
 * {"instruction", "input", "output", "system", "history"}: Alpaca
 *
 * A key that is null counts as not given. Messages of a prompt, and those with a mark ("weight": 0, "train": false, ...), are
 * read but not trained. A message's content is a string, a list of parts ({"type": "text", "text"}) or null. file and line: for
 * error messages. */
enum status chat_read(const char *json, size_t n, const char *file, int64_t line, struct chat_conversation **out);
enum status chat_from_json(const json_t *object, const char *file, int64_t line, struct chat_conversation **out);
/* Tells whether an object has the keys of a conversation, by which a corpus tells rows of chats from rows of text. */
int chat_is_conversation(const json_t *object);
/* Tells whether an object has that key with a value other than null, which tables of several kinds of rows have. */
int chat_has(const json_t *object, const char *key);
/* Kinds of rows: some marks mean other things in each. */
enum chat_row_kind { CHAT_ROW_TEXT, CHAT_ROW_CHAT, CHAT_ROW_IDS };
/* Refuses a row whose marks (weight, train, kto_tag, loss_mask, ...) say that it is not trained, or trained in an unknown way. Marks
 * that are lists, in rows of ids, are left to the caller. ERR_INVALID names file and line. */
enum status chat_check_row(const json_t *row, enum chat_row_kind kind, const char *file, int64_t line);
/* Joins contents that are lists of parts into strings, for templates that take no lists. ERR_NOMEM: memory ran out. */
enum status chat_join_parts(struct chat_conversation *c);
/* Turns arguments of calls that are the text of a JSON object into objects, if the template takes these
 * (chat_template_takes_arguments); *changed: how many. The conversation must not be shared. ERR_INVALID: the template would not
 * write the arguments as JSON. */
enum status chat_take_arguments(struct chat_conversation *c, unsigned takes, int64_t *changed);
/* Says whether a conversation has tools; an empty list is none. */
int chat_has_tools(const struct chat_conversation *c);
int64_t chat_messages(const struct chat_conversation *c);
const char *chat_role(const struct chat_conversation *c, int64_t message);
/* Tells whether a message is an assistant's and not marked as only to be read. */
int chat_is_trained(const struct chat_conversation *c, int64_t message);
/* Returns the last such message, or -1. */
int64_t chat_last_trained(const struct chat_conversation *c);
void chat_destroy(struct chat_conversation *c);

enum chat_train {
    CHAT_TRAIN_ASSISTANT, /* every turn of an assistant, and the token that ends it */
    CHAT_TRAIN_LAST,      /* only the last turn of an assistant */
    CHAT_TRAIN_ALL,       /* every byte */
};

struct chat_options {
    int add_generation_prompt;
    enum chat_train train;
    const json_t *variables; /* object of further variables ("enable_thinking": false), or NULL; a conversation's own
                                  * chat_template_kwargs win */
    const char *const
        *specials;     /* special tokens of the tokenizer, ended by NULL; turns end with one of them. NULL: the template's
                                  * tokens, and texts that look like one (<|...|>, </s>, <end_of_turn>) */
    int64_t now;       /* time of strftime_now, seconds since 1970, UTC; 0: now, local time */
    int strict;        /* 1: a trained message of an assistant that the template leaves out is an error, also if {%
                                  * generation %} blocks decide or all is trained */
    int64_t messages;  /* number of first messages to read, as if the conversation ended there; 0: all */
    size_t max_bytes;  /* most memory of one render, 0: 1 GiB; more is an error */
    int64_t max_steps; /* most steps of the interpreter; 0: 20 million and 20,000 a message, two seconds */
};

/* Origins of bytes, beside the numbers of messages: the template (and its tokens), and data that belong to no message (tools,
 * variables). */
enum { CHAT_FROM_TEMPLATE = -1, CHAT_FROM_DATA = -2 };

/* Bytes [first, end) of one origin; spans are in order, touch, and cover the text. said: an assistant's content, reasoning or
 * tool calls, not its role or name. */
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
    struct chat_range *ends; /* token that ends each trained turn, for turns that have one */
    size_t n_ends;
    int from_generation; /* 1: the template's {% generation %} blocks decide what is supervised */
    int64_t
        reasoning_dropped; /* trained messages of assistants whose reasoning the template leaves out, whether in a member of its
                                * own or as <think> ... </think> in the content */
    int64_t messages_dropped; /* messages with content that the template leaves out */
    int64_t calls_dropped;    /* messages whose tool calls the template leaves out */
    int64_t contents_dropped; /* messages of assistants of which the template writes calls or reasoning and not the rest */
    int64_t tools_dropped;    /* 1: the template writes nothing of the conversation's tools */
    int64_t unended;          /* supervised turns after which no token that ends a turn was found */
    int64_t untrained;        /* turns meant to be supervised that are not found, or stand partly outside of {% generation %} */
    int64_t otherwise;        /* supervised turns that begin otherwise in the whole conversation than after a generation prompt */
    int64_t typed;            /* messages in which somebody wrote special tokens or the template's own text: they are text here */
    int64_t empty;            /* trained messages without content */
    int64_t other_roles;      /* messages of no usual role */
};

/* Renders a conversation, and finds its supervised bytes. A message that consists of tool calls only may be left out: it is
 * counted, and its turn not supervised. The caller destroys *out, which is empty after an error. ERR_INVALID also: nothing is
 * supervised (except with add_generation_prompt), or another message of an assistant is not in the text, so that the template is
 * another model's. */
enum status chat_render(const struct chat_template *t, const struct chat_conversation *c, const struct chat_options *options,
                        struct chat_text *out);
void chat_text_destroy(struct chat_text *text);

#endif
