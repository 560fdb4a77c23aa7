/* Ready-made templates, in the style of model families, for models without a template of their own. */
#include "chat/chat.h"

#include "base/names.h"

#include <string.h>

/* clang-format off */
static const char chatml[] =
    "{%- for message in messages %}\n"
    "{{- '<|im_start|>' + message.role + '\\n' + (message.content or '') + '<|im_end|>\\n' }}\n"
    "{%- endfor %}\n"
    "{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}{%- endif %}\n";

static const char llama3[] =
    "{{- bos_token }}\n"
    "{%- for message in messages %}\n"
    "{{- '<|start_header_id|>' + message.role + '<|end_header_id|>\\n\\n' + (message.content or '') | trim + '<|eot_id|>' }}\n"
    "{%- endfor %}\n"
    "{%- if add_generation_prompt %}{{- '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}{%- endif %}\n";

static const char llama2[] =
    "{%- set start = 0 %}\n"
    "{%- if messages[0].role == 'system' %}{%- set start = 1 %}{%- endif %}\n"
    "{%- for message in messages[start:] %}\n"
    "{%- if (message.role == 'user') != (loop.index0 % 2 == 0) %}\n"
    "{{- raise_exception('user and assistant must take turns') }}\n"
    "{%- endif %}\n"
    "{%- if message.role == 'user' %}\n"
    "{{- bos_token + '[INST] ' }}\n"
    "{%- if start and loop.first %}{{- '<<SYS>>\\n' + messages[0].content + '\\n<</SYS>>\\n\\n' }}{%- endif %}\n"
    "{{- message.content.strip() + ' [/INST]' }}\n"
    "{%- else %}\n"
    "{{- ' ' + message.content.strip() + ' ' + eos_token }}\n"
    "{%- endif %}\n"
    "{%- endfor %}\n";

static const char mistral[] =
    "{{- bos_token }}\n"
    "{%- set start = 0 %}\n"
    "{%- if messages[0].role == 'system' %}{%- set start = 1 %}{%- endif %}\n"
    "{%- for message in messages[start:] %}\n"
    "{%- if message.role == 'user' %}\n"
    "{{- '[INST] ' }}\n"
    "{%- if start and loop.first %}{{- messages[0].content + '\\n\\n' }}{%- endif %}\n"
    "{{- message.content + '[/INST]' }}\n"
    "{%- elif message.role == 'assistant' %}\n"
    "{{- ' ' + message.content + eos_token }}\n"
    "{%- else %}\n"
    "{{- raise_exception('only user, assistant and a first system message are known, not ' + message.role) }}\n"
    "{%- endif %}\n"
    "{%- endfor %}\n";

static const char gemma[] =
    "{{- bos_token }}\n"
    "{%- set ns = namespace(system='') %}\n"
    "{%- for message in messages %}\n"
    "{%- if message.role == 'system' %}\n"
    "{%- set ns.system = message.content + '\\n\\n' %}\n"
    "{%- else %}\n"
    "{{- '<start_of_turn>' + ('model' if message.role == 'assistant' else message.role) + '\\n' }}\n"
    "{{- ns.system + message.content | trim + '<end_of_turn>\\n' }}\n"
    "{%- set ns.system = '' %}\n"
    "{%- endif %}\n"
    "{%- endfor %}\n"
    "{%- if add_generation_prompt %}{{- '<start_of_turn>model\\n' }}{%- endif %}\n";

static const char phi[] =
    "{%- for message in messages %}\n"
    "{{- '<|' + message.role + '|>\\n' + (message.content or '') + '<|end|>\\n' }}\n"
    "{%- endfor %}\n"
    "{%- if add_generation_prompt %}{{- '<|assistant|>\\n' }}{%- endif %}\n";

static const char zephyr[] =
    "{%- for message in messages %}\n"
    "{{- '<|' + message.role + '|>\\n' + (message.content or '') + eos_token + '\\n' }}\n"
    "{%- endfor %}\n"
    "{%- if add_generation_prompt %}{{- '<|assistant|>\\n' }}{%- endif %}\n";

static const char vicuna[] =
    "{{- bos_token }}\n"
    "{%- for message in messages %}\n"
    "{%- if message.role == 'system' %}{{- message.content + '\\n\\n' }}\n"
    "{%- elif message.role == 'user' %}{{- 'USER: ' + message.content + ' ' }}\n"
    "{%- elif message.role == 'assistant' %}{{- 'ASSISTANT: ' + message.content + eos_token + '\\n' }}\n"
    "{%- else %}{{- raise_exception('only system, user and assistant are known, not ' + message.role) }}\n"
    "{%- endif %}\n"
    "{%- endfor %}\n"
    "{%- if add_generation_prompt %}{{- 'ASSISTANT: ' }}{%- endif %}\n";

static const char alpaca[] =
    "{{- bos_token }}\n"
    "{%- for message in messages %}\n"
    "{%- if message.role == 'system' %}{{- message.content + '\\n\\n' }}\n"
    "{%- elif message.role == 'user' %}{{- '### Instruction:\\n' + message.content + '\\n\\n' }}\n"
    "{%- elif message.role == 'assistant' %}{{- '### Response:\\n' + message.content + eos_token + '\\n\\n' }}\n"
    "{%- else %}{{- raise_exception('only system, user and assistant are known, not ' + message.role) }}\n"
    "{%- endif %}\n"
    "{%- endfor %}\n"
    "{%- if add_generation_prompt %}{{- '### Response:\\n' }}{%- endif %}\n";

static const struct {
    const char *name, *source, *bos, *eos;
} builtins[] = {
    {"alpaca", alpaca, "<s>", "</s>"},
    {"chatml", chatml, NULL, "<|im_end|>"},
    {"gemma", gemma, "<bos>", "<end_of_turn>"},
    {"llama2", llama2, "<s>", "</s>"},
    {"llama3", llama3, "<|begin_of_text|>", "<|eot_id|>"},
    {"mistral", mistral, "<s>", "</s>"},
    {"phi", phi, NULL, "<|end|>"},
    {"vicuna", vicuna, "<s>", "</s>"},
    {"zephyr", zephyr, NULL, "</s>"},
};
/* clang-format on */

enum { N_BUILTINS = sizeof builtins / sizeof *builtins };

const char *const *chat_template_builtins(void)
{
    static const char *const names[N_BUILTINS + 1] = {"alpaca",  "chatml", "gemma",  "llama2", "llama3",
                                                      "mistral", "phi",    "vicuna", "zephyr"};
    return names;
}

enum status chat_template_builtin(const char *name, struct chat_template **out)
{
    struct chat_template *t = NULL;
    for (int i = 0; i < N_BUILTINS; i++) {
        if (strcmp(builtins[i].name, name) != 0)
            continue;
        TRY(chat_template_parse(builtins[i].source, strlen(builtins[i].source), name, &t));
        enum status st = chat_template_set_token(t, "eos_token", builtins[i].eos);
        if (st == OK && builtins[i].bos)
            st = chat_template_set_token(t, "bos_token", builtins[i].bos);
        if (st == OK)
            *out = t;
        else
            chat_template_destroy(t);
        return st;
    }
    const char *nearest = names_nearest(name, chat_template_builtins(), N_BUILTINS);
    return status_fail(ERR_INVALID,
                       "no chat template is called '%.60s'%s%s%s: there are alpaca, chatml, gemma, llama2, llama3, mistral, phi, "
                       "vicuna and zephyr",
                       name, nearest ? "; did you mean " : "", nearest ? nearest : "", nearest ? "?" : "");
}
