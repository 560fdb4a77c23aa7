/* Chats as models read them: a Jinja template and a conversation give a text, the origin of each of its bytes, and the bytes that
 * are trained.
 *
 * Templates are those of transformers' apply_chat_template; the interpreter knows the constructs of chat templates (docs/data.md
 * lists them) and refuses others by line and name. Nothing here knows tokens. A caller tokenizes the text once, without adding
 * special tokens, recognises added tokens only in bytes that come from the template, and trains a token if any of its bytes is
 * supervised.
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
#define CHAT_MORE_TEMPLATES "additional_chat_templates" /* directory of further templates, NAME.jinja each */
#define CHAT_TOOL_TEMPLATE "tool_use"                   /* name of the template for conversations with tools */

/* Loads the templates of a Hugging Face directory, as transformers does. chat_template.jinja is the template `default`, and
 * additional_chat_templates/NAME.jinja the template NAME. Without any of these files `chat_template` of tokenizer_config.json
 * counts: a string, or a list of {name, template}.
 *
 * *out is the default, with tool_use, if there is one, for conversations with tools (chat_template_for_tools), and with the
 * special tokens that tokenizer_config.json names. A directory without a template is an error that says how to give one. */
enum status chat_template_load(const char *dir, struct chat_template **out);
/* Loads the directory's template named `name`, to be used for all conversations; *out NULL: the directory has none of that name. */
enum status chat_template_find(const char *dir, const char *name, struct chat_template **out);
/* Returns the separate template for conversations with tools; NULL: t is used for all conversations. */
const struct chat_template *chat_template_for_tools(const struct chat_template *t);
/* Returns a sentence that says why the separate template for conversations with tools cannot be read; NULL: nothing is wrong. */
const char *chat_template_tools_error(const struct chat_template *t);
/* Adds to the template those tokens of a directory's tokenizer_config.json and special_tokens_map.json that it does not have yet. */
enum status chat_template_read_tokens(struct chat_template *t, const char *dir);
/* Reads the template in a file; no special tokens are known to it. */
enum status chat_template_open(const char *path, struct chat_template **out);
/* Makes one of ltrain's own templates (chatml, llama3, mistral, gemma, phi, zephyr, ...) with its family's tokens. */
enum status chat_template_builtin(const char *name, struct chat_template **out);
/* Returns the names of ltrain's own templates; a NULL ends the list. */
const char *const *chat_template_builtins(void);
/* Sets a variable of the template that stands for a token ("eos_token", "</s>"). The token's text counts as written by the
 * template. */
enum status chat_template_set_token(struct chat_template *t, const char *variable, const char *token);
/* Returns the token for which a variable stands, or NULL. */
const char *chat_template_token(const struct chat_template *t, const char *variable);
/* Returns the template's source; *n: its length in bytes. */
const char *chat_template_source(const struct chat_template *t, size_t *n);
/* Finds, by rendering a conversation of its own, whether the template writes the texts of a content that is a list of parts.
 * Other templates leave such contents out, or write the list as Python would print it. */
int chat_template_takes_parts(const struct chat_template *t, const struct chat_options *options);
/* Finds, by rendering, in which forms the template takes arguments of tool calls: objects, JSON texts, both or none
 * (CHAT_ARGUMENTS_*). */
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
/* Tells whether an object has the keys of a conversation; a corpus so tells rows of chats from rows of text. */
int chat_is_conversation(const json_t *object);
/* Tells whether an object has that key with a value other than null; tables with several kinds of rows have nulls for the keys of
 * other kinds. */
int chat_has(const json_t *object, const char *key);
/* Kinds of rows; some marks have a different meaning in each kind. */
enum chat_row_kind { CHAT_ROW_TEXT, CHAT_ROW_CHAT, CHAT_ROW_IDS };
/* Refuses a row that is marked as not to be trained, or to be trained in an unknown way (weight, train, kto_tag, loss_mask, ...).
 * In rows of ids marks that are lists are left to the caller. ERR_INVALID names file and line. */
enum status chat_check_row(const json_t *row, enum chat_row_kind kind, const char *file, int64_t line);
/* Joins each content that is a list of parts into a string, for templates that take no lists. ERR_NOMEM: memory ran out. */
enum status chat_join_parts(struct chat_conversation *c);
/* Turns arguments of tool calls that are the text of a JSON object into objects, if `takes` says that the template takes objects
 * (chat_template_takes_arguments). *changed: number of such calls. Nobody else may use the conversation meanwhile. ERR_INVALID:
 * the template would not write the arguments as JSON. */
enum status chat_take_arguments(struct chat_conversation *c, unsigned takes, int64_t *changed);
/* Tells whether a conversation has tools; an empty list of tools counts as none. */
int chat_has_tools(const struct chat_conversation *c);
int64_t chat_messages(const struct chat_conversation *c);
const char *chat_role(const struct chat_conversation *c, int64_t message);
/* Tells whether a message is an assistant's and carries no mark that it is only read, not trained. */
int chat_is_trained(const struct chat_conversation *c, int64_t message);
/* Returns the last message for which chat_is_trained holds; -1: there is none. */
int64_t chat_last_trained(const struct chat_conversation *c);
void chat_destroy(struct chat_conversation *c);

enum chat_train {
    CHAT_TRAIN_ASSISTANT, /* every turn of an assistant, with the token that ends the turn */
    CHAT_TRAIN_LAST,      /* only the last turn of an assistant */
    CHAT_TRAIN_ALL,       /* every byte of the text */
};

struct chat_options {
    int add_generation_prompt;
    enum chat_train train;
    /* object of further variables ("enable_thinking": false), or NULL; the conversation's chat_template_kwargs override these */
    const json_t *variables;
    /* special tokens of the tokenizer, ended by NULL, some of which end turns; NULL: the template's tokens, and texts that look
     * like tokens (<|...|>, </s>, <end_of_turn>) */
    const char *const *specials;
    int64_t now; /* time that strftime_now gives, seconds since 1970, UTC; 0: the present local time */
    /* 1: a trained message of an assistant that the template leaves out is an error, also with {% generation %} blocks or
     * CHAT_TRAIN_ALL */
    int strict;
    int64_t messages;  /* number of messages to render, as if the conversation ended behind them; 0: all */
    size_t max_bytes;  /* most bytes of memory that a render may take; 0: 256 MiB */
    int64_t max_steps; /* most steps of the interpreter; 0: 20 million (two seconds), and 20,000 a message */
};

/* Origins of bytes that belong to no message: the template (and its tokens), and data (tools, variables). Other origins are
 * numbers of messages. */
enum { CHAT_FROM_TEMPLATE = -1, CHAT_FROM_DATA = -2 };

/* Bytes [first, end) of one origin; spans are in order, adjacent, and cover the text. said: 1: an assistant's content, reasoning
 * or tool calls, not its role or name. */
struct chat_span {
    size_t first, end;
    int64_t origin;
    int said;
};

struct chat_range {
    size_t first, end;
};

struct chat_text {
    char *bytes; /* UTF-8, [n], with a zero behind */
    size_t n;
    struct chat_span *spans;
    size_t n_spans;
    struct chat_range *supervised; /* bytes that are trained; ranges are in order, not adjacent, and not empty */
    size_t n_supervised;
    struct chat_range *ends; /* bytes of the tokens that end trained turns, a range for each such turn */
    size_t n_ends;
    int from_generation; /* 1: the template's {% generation %} blocks decide what is supervised */
    /* trained messages whose reasoning the template leaves out, be it a member of its own or <think> ... </think> in the content */
    int64_t reasoning_dropped;
    int64_t messages_dropped; /* messages with content that the template leaves out */
    int64_t calls_dropped;    /* messages whose tool calls the template leaves out */
    int64_t contents_dropped; /* messages of assistants whose answer the template leaves out, but not their calls or reasoning */
    int64_t tools_dropped;    /* 1: the template writes nothing of the conversation's tools */
    int64_t unended;          /* supervised turns after which no token that ends a turn was found */
    int64_t untrained; /* turns to be trained that are not found in the text, or stand partly outside of {% generation %} */
    /* supervised turns before which the text differs from a render of the earlier messages with the generation prompt */
    int64_t otherwise;
    int64_t typed; /* messages in which somebody typed special tokens or the template's own text, which stay plain text here */
    int64_t empty; /* trained messages without content */
    int64_t other_roles; /* messages whose role is none of the usual ones */
};

/* Renders a conversation, and finds its supervised bytes. If the template leaves out a message that has only tool calls, the
 * message is counted and its turn is not supervised. The caller destroys *out, which is empty after an error.
 *
 * ERR_INVALID also: nothing is supervised (except with add_generation_prompt), or another message of an assistant is not in the
 * text, so that the template must be another model's. */
enum status chat_render(const struct chat_template *t, const struct chat_conversation *c, const struct chat_options *options,
                        struct chat_text *out);
void chat_text_destroy(struct chat_text *text);

#endif
