/* Tests conversations of all shapes, supervised bytes, places of templates, and errors. */
#include "chat_test.h"

#include "../data/scratch.h"

static struct chat_template *family(const char *name)
{
    char path[200];
    size_t n;
    struct chat_template *t = NULL;
    snprintf(path, sizeof path, "templates/%s.jinja", name);
    char *source = chat_test_read(path, &n);
    assert_int_equal(chat_template_parse(source, n, name, &t), OK);
    assert_int_equal(chat_template_set_token(t, "bos_token", "<s>"), OK);
    assert_int_equal(chat_template_set_token(t, "eos_token", "</s>"), OK);
    free(source);
    return t;
}

/* Returns the rendered text with its supervised parts in brackets 【】. */
static char *marked(struct chat_template *t, const char *json, const struct chat_options *options)
{
    struct chat_conversation *c = chat_test_chat(json);
    struct chat_text text;
    if (chat_render(t, c, options, &text) != OK) {
        chat_destroy(c);
        return strdup(status_message());
    }
    char *out = calloc(text.n + 8 * text.n_supervised + 1, 1), *to = out;
    size_t at = 0;
    for (size_t i = 0; i <= text.n_supervised; i++) {
        size_t first = i < text.n_supervised ? text.supervised[i].first : text.n;
        assert_true(first >= at);
        to += sprintf(to, "%.*s", (int)(first - at), text.bytes + at);
        if (i == text.n_supervised)
            break;
        at = text.supervised[i].end;
        assert_true(at > first && at <= text.n);
        to += sprintf(to, "【%.*s】", (int)(at - first), text.bytes + first);
    }
    chat_text_destroy(&text);
    chat_destroy(c);
    return out;
}

static void expect(const char *name, const char *json, enum chat_train train, const char *want)
{
    struct chat_template *t = family(name);
    struct chat_options options = {.train = train, .now = 86400};
    char *got = marked(t, json, &options);
    if (strcmp(got, want) != 0)
        fail_msg("%s\n%s\ngives    %s\nexpected %s", name, json, got, want);
    free(got);
    chat_template_destroy(t);
}

#define TURNS                                                                                                     \
    "{\"messages\": [{\"role\": \"user\", \"content\": \"Q1\"}, {\"role\": \"assistant\", \"content\": \"A1\"}, " \
    "{\"role\": \"user\", \"content\": \"Q2\"}, {\"role\": \"assistant\", \"content\": \"A2\"}]}"
#define THINKING                                                                                                                \
    "{\"messages\": [{\"role\": \"user\", \"content\": \"Q1\"}, {\"role\": \"assistant\", \"content\": \"A1\", \"reasoning\": " \
    "\"R1\"}, "                                                                                                                 \
    "{\"role\": \"user\", \"content\": \"Q2\"}, {\"role\": \"assistant\", \"content\": \"A2\", \"reasoning\": \"R2\"}]}"
#define TOOLS                                                                                                                   \
    "{\"messages\": [{\"role\": \"user\", \"content\": \"Q\"}, {\"role\": \"assistant\", \"tool_calls\": [{\"id\": "            \
    "\"123456789\", "                                                                                                           \
    "\"type\": \"function\", \"function\": {\"name\": \"f\", \"arguments\": {\"n\": 5}}}]}, {\"role\": \"tool\", \"content\": " \
    "\"T\", "                                                                                                                   \
    "\"tool_call_id\": \"123456789\"}, {\"role\": \"assistant\", \"content\": \"A\"}]}"

/* The token that ends a turn is trained, the newline after it is not, and nothing of a user's message is trained. */
static void test_turns(void **state)
{
    (void)state;
    expect("chatml", TURNS, CHAT_TRAIN_ASSISTANT,
           "<|im_start|>user\nQ1<|im_end|>\n<|im_start|>assistant\n【A1<|im_end|>】\n<|im_start|>user\nQ2<|im_end|>\n<|im_start|>"
           "assistant\n"
           "【A2<|im_end|>】\n");
    expect("chatml", TURNS, CHAT_TRAIN_LAST,
           "<|im_start|>user\nQ1<|im_end|>\n<|im_start|>assistant\nA1<|im_end|>\n<|im_start|>user\nQ2<|im_end|>\n<|im_start|>"
           "assistant\n"
           "【A2<|im_end|>】\n");
    expect("vicuna", TURNS, CHAT_TRAIN_ALL, "【<s>USER: Q1 ASSISTANT: A1</s>\nUSER: Q2 ASSISTANT: A2</s>\n】");
    expect("vicuna", TURNS, CHAT_TRAIN_ASSISTANT, "<s>USER: Q1 ASSISTANT:【 A1</s>】\nUSER: Q2 ASSISTANT:【 A2</s>】\n");
    expect("llama2", TURNS, CHAT_TRAIN_ASSISTANT, "<s>[INST] Q1 [/INST]【 A1 </s>】<s>[INST] Q2 [/INST]【 A2 </s>】");
    expect("phi3", TURNS, CHAT_TRAIN_ASSISTANT, /* the template's text at the end of the conversation does not end a turn */
           "<|user|>\nQ1<|end|>\n<|assistant|>\n【A1<|end|>】\n<|user|>\nQ2<|end|>\n<|assistant|>\n【A2<|end|>】\n</s>\n");
    expect("gemma2", TURNS, CHAT_TRAIN_ASSISTANT,
           "<s><start_of_turn>user\nQ1<end_of_turn>\n<start_of_turn>model\n【A1<end_of_turn>】\n<start_of_turn>user\nQ2<end_of_"
           "turn>\n"
           "<start_of_turn>model\n【A2<end_of_turn>】\n");
    expect("phi4", TURNS, CHAT_TRAIN_ASSISTANT, /* trained as its {% generation %} blocks say */
           "<|im_start|>user<|im_sep|>Q1<|im_end|><|im_start|>assistant<|im_sep|>【A1<|im_end|>】<|im_start|>user<|im_sep|>Q2<|"
           "im_end|>"
           "<|im_start|>assistant<|im_sep|>【A2<|im_end|>】");
    expect(
        "phi4", TURNS, CHAT_TRAIN_LAST,
        "<|im_start|>user<|im_sep|>Q1<|im_end|><|im_start|>assistant<|im_sep|>A1<|im_end|><|im_start|>user<|im_sep|>Q2<|im_end|>"
        "<|im_start|>assistant<|im_sep|>【A2<|im_end|>】");
}

/* The template leaves out earlier reasoning, so a shorter render is not a prefix of a longer one. The text that is rendered is
 * trained nevertheless. */
static void test_reasoning(void **state)
{
    (void)state;
    expect("qwen3", THINKING, CHAT_TRAIN_ASSISTANT,
           "<|im_start|>user\nQ1<|im_end|>\n<|im_start|>assistant\n【A1<|im_end|>】\n<|im_start|>user\nQ2<|im_end|>\n<|im_start|>"
           "assistant\n"
           "【<think>\nR2\n</think>\n\nA2<|im_end|>】\n");
    expect("qwen3", TURNS, CHAT_TRAIN_LAST, /* an empty block, as the template writes it */
           "<|im_start|>user\nQ1<|im_end|>\n<|im_start|>assistant\nA1<|im_end|>\n<|im_start|>user\nQ2<|im_end|>\n<|im_start|>"
           "assistant\n"
           "【<think>\n\n</think>\n\nA2<|im_end|>】\n");
    expect("deepseek_r1", THINKING, CHAT_TRAIN_ASSISTANT, /* <think> is in the generation prompt */
           "<s><｜User｜>Q1<｜Assistant｜>【A1<｜end▁of▁sentence｜>】<｜User｜>Q2<｜Assistant｜><think>\n【R2\n</"
           "think>\n\nA2<｜end▁of▁sentence｜>】");
    struct chat_template *t = family("qwen3");
    struct chat_conversation *c = chat_test_chat(THINKING);
    struct chat_options options = {.train = CHAT_TRAIN_ASSISTANT};
    struct chat_text text;
    assert_int_equal(chat_render(t, c, &options, &text), OK);
    assert_int_equal(text.reasoning_dropped, 1);
    assert_int_equal(text.unended, 0);
    chat_text_destroy(&text);
    options.train = CHAT_TRAIN_ALL;
    assert_int_equal(chat_render(t, c, &options, &text), OK);
    assert_int_equal(text.reasoning_dropped, 1);
    chat_text_destroy(&text);
    options.train = CHAT_TRAIN_ASSISTANT;
    options.messages = 2; /* only two messages are rendered */
    assert_int_equal(chat_render(t, c, &options, &text), OK);
    assert_non_null(strstr(text.bytes, "R1"));
    assert_int_equal(text.reasoning_dropped, 0);
    chat_text_destroy(&text);
    chat_destroy(c);
    chat_template_destroy(t);
}

/* Renders a row by a template given as text, with {% generation %} blocks or without. */
static struct chat_text render_by(const char *source, const char *row, enum chat_train train)
{
    struct chat_template *t = NULL;
    struct chat_conversation *c = chat_test_chat(row);
    struct chat_options options = {.train = train};
    struct chat_text text;
    if (chat_template_parse(source, strlen(source), "t", &t) != OK || chat_render(t, c, &options, &text) != OK)
        fail_msg("%s", status_message());
    chat_destroy(c);
    chat_template_destroy(t);
    return text;
}

/* Members of messages that are missing from the text are counted, whether {% generation %} blocks or the messages' words decide
 * which bytes are trained. */
static void test_left_out(void **state)
{
    (void)state;
    static const char tagged
        [] =
            "{% for m in messages %}{% if m.role == 'assistant' %}{% generation %}{{ m.content.split('</think>')[-1] }}<|im_end|>"
            "{% endgeneration %}{% elif m.role == 'user' %}{{ m.content }}{% endif %}{% endfor %}",
  either[] =
        "{% for m in messages %}{{ m.role }}: {{ m.tool_calls | tojson if m.tool_calls else m.content }}<|im_end|>{% endfor %}",
  plain[] = "{% for m in messages %}{{ m.role }}: {{ m.content }}<|im_end|>{% endfor %}",
  inside[] =
        "{\"messages\": [{\"role\": \"system\", \"content\": \"S\"}, {\"role\": \"user\", \"content\": \"Q\"}, "
        "{\"role\": \"assistant\", \"content\": \"<think>R</think>A\"}, {\"role\": \"user\", \"content\": \"Q\"}, "
        "{\"role\": \"assistant\", \"content\": \"<think>\\n</think>A\", \"tool_calls\": [{\"function\": {\"name\": \"f\"}}]}], "
        "\"tools\": [{\"function\": {\"name\": \"f\"}}]}";
    static const struct {
        const char *source, *row;
        enum chat_train train;
        int64_t reasoning, messages, calls, contents, tools;
    } cases[] = {{tagged, THINKING, CHAT_TRAIN_ASSISTANT, 2, 0, 0, 0, 0}, {tagged, THINKING, CHAT_TRAIN_LAST, 1, 0, 0, 0, 0},
                 {tagged, THINKING, CHAT_TRAIN_ALL, 2, 0, 0, 0, 0},       {plain, THINKING, CHAT_TRAIN_ALL, 2, 0, 0, 0, 0},
                 {tagged, inside, CHAT_TRAIN_ASSISTANT, 1, 1, 1, 0, 1},   {plain, inside, CHAT_TRAIN_ASSISTANT, 0, 0, 1, 0, 1},
                 {either, inside, CHAT_TRAIN_ASSISTANT, 0, 0, 0, 1, 1}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct chat_text text = render_by(cases[i].source, cases[i].row, cases[i].train);
        if (text.reasoning_dropped != cases[i].reasoning || text.messages_dropped != cases[i].messages ||
            text.calls_dropped != cases[i].calls || text.contents_dropped != cases[i].contents ||
            text.tools_dropped != cases[i].tools)
            fail_msg("case %zu: %lld, %lld, %lld, %lld, %lld", i, (long long)text.reasoning_dropped,
                     (long long)text.messages_dropped, (long long)text.calls_dropped, (long long)text.contents_dropped,
                     (long long)text.tools_dropped);
        chat_text_destroy(&text);
    }
}

static void test_tools(void **state)
{
    (void)state;
    expect("qwen25", TOOLS, CHAT_TRAIN_ASSISTANT,
           "<|im_start|>system\nYou are Q, a helpful "
           "assistant.<|im_end|>\n<|im_start|>user\nQ<|im_end|>\n<|im_start|>assistant\n【<tool_call>\n"
           "{\"name\": \"f\", \"arguments\": {\"n\": "
           "5}}\n</tool_call><|im_end|>】\n<|im_start|>user\n<tool_response>\nT\n</tool_response>"
           "<|im_end|>\n<|im_start|>assistant\n【A<|im_end|>】\n");
    expect("gpt_oss", TOOLS, CHAT_TRAIN_ASSISTANT,
           "<|start|>system<|message|>You are O.\nCurrent date: 1970-01-02\n\nReasoning: medium\n\n# Valid channels: analysis, "
           "commentary, "
           "final.<|end|><|start|>user<|message|>Q<|end|><|start|>assistant【 to=functions.f<|channel|>commentary "
           "json<|message|>{\"n\": 5}"
           "<|call|>】<|start|>functions.f "
           "to=assistant<|channel|>commentary<|message|>\"T\"<|end|><|start|>assistant【<|channel|>final"
           "<|message|>A<|return|>】");
    expect("deepseek_v3", TOOLS, CHAT_TRAIN_ASSISTANT,
           "<s><｜User｜>Q<｜Assistant｜>【<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>f\n```json\n{\"n\": "
           "5}\n```"
           "<｜tool▁call▁end｜><｜tool▁calls▁end｜><｜end▁of▁sentence｜>】<｜tool▁outputs▁begin｜><｜tool▁output▁begin｜>T"
           "<｜tool▁output▁end｜><｜tool▁outputs▁end｜>【A<｜end▁of▁sentence｜>】");
    expect("mistral_v3", TOOLS, CHAT_TRAIN_ASSISTANT,
           "<s>[INST] Q[/INST]【[TOOL_CALLS] [{\"name\": \"f\", \"arguments\": {\"n\": 5}, \"id\": "
           "\"123456789\"}]</s>】[TOOL_RESULTS] "
           "{\"content\": T, \"call_id\": \"123456789\"}[/TOOL_RESULTS]【 A</s>】");
}

/* Empty answers have an end token, too, and so have turns that are only read; a turn without an end token is trained. */
static void test_odd_turns(void **state)
{
    (void)state;
    expect("chatml", "{\"messages\": [{\"role\": \"user\", \"content\": \"\"}, {\"role\": \"assistant\", \"content\": \"\"}]}",
           CHAT_TRAIN_ASSISTANT, "<|im_start|>user\n<|im_end|>\n<|im_start|>assistant\n【<|im_end|>】\n");
    expect("chatml",
           "{\"messages\": [{\"role\": \"user\", \"content\": \"Q\"}, {\"role\": \"assistant\", \"content\": \"A\", \"weight\": "
           "0}, {\"role\": "
           "\"assistant\", \"content\": \"B\"}]}",
           CHAT_TRAIN_ASSISTANT,
           "<|im_start|>user\nQ<|im_end|>\n<|im_start|>assistant\nA<|im_end|>\n<|im_start|>assistant\n【B<|im_end|>】\n");
    struct chat_template *t = chat_test_template("{% for m in messages %}{{ m.role ~ ': ' ~ m.content ~ '\\n' }}{% endfor %}");
    struct chat_options options = {.train = CHAT_TRAIN_ASSISTANT};
    char *got = marked(t, TURNS, &options);
    assert_string_equal(got, "user: Q1\n【assistant: A1】\nuser: Q2\n【assistant: A2】\n");
    free(got);
    chat_template_destroy(t);
    /* the turn ends with a special token that only the tokenizer knows */
    t = chat_test_template("{% for m in messages %}{{ m.role ~ ': ' ~ m.content ~ '[STOP]\\n' }}{% endfor %}");
    options.specials = (const char *const[]){"[STOP]", NULL};
    got = marked(t, TURNS, &options);
    assert_string_equal(got, "user: Q1[STOP]\n【assistant: A1[STOP]】\nuser: Q2[STOP]\n【assistant: A2[STOP]】\n");
    free(got);
    chat_template_destroy(t);
}

static void test_shapes(void **state)
{
    (void)state;
    const char *want = "<|im_start|>user\nQ<|im_end|>\n<|im_start|>assistant\n【A<|im_end|>】\n";
    const char *with_system =
        "<|im_start|>system\nS<|im_end|>\n<|im_start|>user\nQ<|im_end|>\n<|im_start|>assistant\n【A<|im_end|>】\n";
    expect("chatml", "{\"conversations\": [{\"from\": \"human\", \"value\": \"Q\"}, {\"from\": \"gpt\", \"value\": \"A\"}]}", 0,
           want);
    expect("chatml",
           "{\"conversations\": [{\"from\": \"human\", \"value\": \"Q\"}, {\"from\": \"gpt\", \"value\": \"A\"}], \"system\": "
           "\"S\"}",
           0, with_system);
    expect("chatml",
           "{\"conversations\": [{\"role\": \"user\", \"content\": \"Q\"}, {\"role\": \"assistant\", \"content\": \"A\"}]}", 0,
           want);
    expect("chatml", "{\"prompt\": \"Q\", \"completion\": \"A\"}", 0, want);
    expect("chatml",
           "{\"prompt\": [{\"role\": \"system\", \"content\": \"S\"}, {\"role\": \"user\", \"content\": \"Q\"}], \"completion\": "
           "[{\"role\": \"assistant\", \"content\": \"A\"}]}",
           0, with_system);
    expect("chatml", "{\"prompt\": [{\"role\": \"assistant\", \"content\": \"X\"}], \"completion\": \"A\"}", 0,
           "<|im_start|>assistant\nX<|im_end|>\n<|im_start|>assistant\n【A<|im_end|>】\n");
    expect("chatml", "{\"instruction\": \"Q\", \"input\": \"\", \"output\": \"A\", \"system\": \"S\"}", 0, with_system);
    expect("chatml", "{\"instruction\": \"Q\", \"input\": \"I\", \"output\": \"A\"}", 0,
           "<|im_start|>user\nQ\n\nI<|im_end|>\n<|im_start|>assistant\n【A<|im_end|>】\n");
    expect("chatml", "{\"instruction\": \"Q\", \"output\": \"A\", \"history\": [[\"q\", \"a\"]]}", 0,
           "<|im_start|>user\nq<|im_end|>\n<|im_start|>assistant\n【a<|im_end|>】\n<|im_start|>user\nQ<|im_end|>\n<|im_start|>"
           "assistant\n"
           "【A<|im_end|>】\n");
}

static void refuse(const char *json, const char *part)
{
    struct chat_conversation *c = NULL;
    struct chat_template *t = family("qwen25");
    struct chat_text text;
    struct chat_options options = {0};
    enum status st = chat_read(json, strlen(json), "chats.jsonl", 7, &c);
    if (st == OK)
        st = chat_render(t, c, &options, &text);
    assert_int_equal(st, ERR_INVALID);
    if (!strstr(status_message(), part) || strncmp(status_message(), "chats.jsonl:7: ", 15) != 0)
        fail_msg("%s\n'%s' does not say '%s'", json, status_message(), part);
    chat_destroy(c);
    chat_template_destroy(t);
}

static void test_bad_rows(void **state)
{
    (void)state;
    refuse("{\"messages\": [", "not JSON");
    refuse("[1]", "object");
    refuse("{\"text\": \"x\"}", "no conversation");
    refuse("{\"messages\": {}}", "messages is not a list");
    refuse("{\"messages\": []}", "empty");
    refuse("{\"messages\": [1]}", "message 1 is not an object");
    refuse("{\"messages\": [{\"role\": \"user\", \"content\": \"x\"}, {\"content\": \"y\"}]}", "message 2 has no role");
    refuse("{\"messages\": [{\"role\": 3, \"content\": \"y\"}]}", "role of message 1 is not a string");
    refuse("{\"messages\": [{\"role\": \"user\"}]}", "message 1 (user) has neither content nor tool_calls");
    refuse("{\"messages\": [{\"role\": \"user\", \"content\": 5}]}", "content of message 1");
    refuse("{\"messages\": [{\"role\": \"user\", \"content\": [{\"type\": \"image\"}]}]}", "part of type 'image': only text");
    refuse("{\"messages\": [{\"role\": \"assistant\", \"content\": \"a\", \"tool_calls\": {}}]}", "tool_calls of message 1");
    refuse("{\"messages\": [{\"role\": \"user\", \"content\": \"x\"}]}", "nothing in this conversation is trained");
    refuse("{\"conversations\": [{\"from\": \"narrator\", \"value\": \"x\"}]}", "turn 1 is from 'narrator'");
    refuse("{\"conversations\": [{\"value\": \"x\"}]}", "turn 1 has no \"from\"");
    refuse("{\"conversations\": [{\"from\": \"gpt\"}]}", "turn 1 has no \"value\"");
    refuse("{\"prompt\": \"x\"}", "completion is neither");
    refuse("{\"instruction\": \"x\"}", "must be strings");
    refuse("{\"messages\": [{\"role\": \"user\", \"content\": \"x\"}], \"tools\": \"nonsense\"}", "tools is not a list");
    refuse("{\"messages\": [{\"role\": \"user\", \"content\": \"x\"}], \"chat_template_kwargs\": 1}", "chat_template_kwargs");
    refuse("{\"messages\": [{\"role\": \"user\", \"content\": \"\xff\"}]}", "not JSON");
}

static void refuse_template(const char *source, const char *json, const char *part)
{
    struct chat_template *t = NULL;
    struct chat_conversation *c = chat_test_chat(json);
    struct chat_text text;
    struct chat_options options = {.max_steps = 3000000, .max_bytes = 32 << 20};
    enum status st = chat_template_parse(source, strlen(source), "t.jinja", &t);
    if (st == OK)
        st = chat_render(t, c, &options, &text);
    assert_int_equal(st, ERR_INVALID);
    if (!strstr(status_message(), part))
        fail_msg("%s\n'%s' does not say '%s'", source, status_message(), part);
    chat_destroy(c);
    chat_template_destroy(t);
}

/* A template that runs for hours is stopped after some 20 million steps, and later if there are more messages. */
static void test_template_without_end(void **state)
{
    (void)state;
    static const char source[] = "{% set l = range(99999) %}{% for i in l %}{{ 0 if -1 in l }}{% endfor %}";
    struct chat_template *t = NULL;
    struct chat_conversation *c = chat_test_chat(TURNS);
    struct chat_text text;
    assert_int_equal(chat_template_parse(source, strlen(source), "t.jinja", &t), OK);
    assert_int_equal(chat_render(t, c, &(struct chat_options){0}, &text), ERR_INVALID);
    assert_non_null(strstr(status_message(), "t.jinja:1: the template takes more than 200"));
    chat_destroy(c);
    chat_template_destroy(t);
}

/* Error messages have the template's name, the line and the construct. */
static void test_bad_templates(void **state)
{
    (void)state;
    refuse_template("a\n{% include 'x' %}", TURNS, "t.jinja:2: {% include %} is not supported");
    refuse_template("\n\n{{ messages | batch(2) }}", TURNS, "t.jinja:3: the filter 'batch' is not supported");
    refuse_template("\n{{ 1 is escaped }}", TURNS, "t.jinja:2: the test 'escaped' is not supported");
    refuse_template("\n{{ 'x'.swapcase() }}", TURNS, "t.jinja:2: str.swapcase() is not supported");
    refuse_template("{{ cycler(1) }}", TURNS, "t.jinja:1: cycler() is not supported");
    refuse_template("{% for m in messages %}\n{{ m.foo.bar }}\n{% endfor %}", TURNS, "t.jinja:2: 'foo' is undefined");
    refuse_template("{{ messages[0].content.content.x }}", TURNS, "t.jinja:1: 'content' is undefined: the template needs it");
    refuse_template("{% if x %}\nz", TURNS, "t.jinja:2: the template ends before {% endif %}");
    refuse_template("{{ 'stra\xc3\x9f' | upper }}e", TURNS, "not supported");
    refuse_template("\xff", TURNS, "not UTF-8");
    refuse_template("{{ raise_exception('roles must alternate') }}", TURNS,
                    "chats.jsonl:3: t.jinja:1: the template refuses the conversation: roles must");
    refuse_template("{% for m in messages if m.role == 'user' %}{{ m.content }}{% endfor %}", TURNS,
                    "chats.jsonl:3: the chat template t.jinja leaves out message 2, of an assistant: it may be another model's");
    refuse_template("{% set l = range(99999) %}{% for i in l %}{{ 0 if -1 in l }}{% endfor %}", TURNS, "steps");
    refuse_template("{% set ns = namespace(s='x') %}{% for i in range(100) %}{% set ns.s = ns.s + ns.s %}{% endfor %}", TURNS,
                    "memory");
    refuse_template("{{ 'x' * 9000000000000000000 }}", TURNS, "steps");
    refuse_template("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", TURNS, "nests deeper");
}

static void test_lookup(void **state)
{
    (void)state;
    struct chat_template *t = NULL;
    size_t n;
    scratch_mkdir("a");
    assert_int_equal(chat_template_load(scratch_path("a"), &t), ERR_INVALID);
    assert_non_null(strstr(status_message(), "no chat template"));
    scratch_text("a/tokenizer_config.json",
                 "{\"chat_template\": \"old\", \"eos_token\": {\"content\": \"<e>\"}, \"bos_token\": \"<b>\", "
                 "\"pad_token\": null, \"add_bos_token\": true, \"model_max_length\": 1000000000000000019884624838656}");
    scratch_text("a/special_tokens_map.json", "{\"eos_token\": \"other\", \"unk_token\": \"<u>\"}");
    assert_int_equal(chat_template_load(scratch_path("a"), &t), OK);
    assert_string_equal(chat_template_source(t, &n), "old");
    assert_string_equal(chat_template_token(t, "eos_token"), "<e>");
    assert_string_equal(chat_template_token(t, "bos_token"), "<b>");
    assert_string_equal(chat_template_token(t, "unk_token"), "<u>");
    assert_null(chat_template_token(t, "pad_token"));
    chat_template_destroy(t);
    scratch_text("a/chat_template.jinja", "new");
    assert_int_equal(chat_template_load(scratch_path("a"), &t), OK);
    assert_string_equal(chat_template_source(t, &n), "new");
    assert_string_equal(chat_template_token(t, "eos_token"), "<e>");
    chat_template_destroy(t);
    scratch_mkdir("b");
    scratch_text("b/tokenizer_config.json",
                 "{\"chat_template\": [{\"name\": \"default\", \"template\": \"one\"}, {\"name\": \"tool_use\", "
                 "\"template\": \"two\"}, {\"name\": \"bad\", \"template\": \"{{\"}]}");
    assert_int_equal(chat_template_load(scratch_path("b"), &t), OK);
    assert_string_equal(chat_template_source(t, &n), "one");
    assert_string_equal(chat_template_source(chat_template_for_tools(t), &n), "two");
    chat_template_destroy(t);
    assert_int_equal(chat_template_find(scratch_path("b"), "tool_use", &t), OK);
    assert_string_equal(chat_template_source(t, &n), "two");
    assert_null(chat_template_for_tools(t));
    chat_template_destroy(t);
    assert_int_equal(chat_template_find(scratch_path("b"), "rag", &t), OK);
    assert_null(t);
    assert_int_equal(chat_template_find(scratch_path("b"), "bad", &t), ERR_INVALID);
    assert_non_null(strstr(status_message(), "tokenizer_config.json: chat_template bad:1: "));
    scratch_text("b/tokenizer_config.json", "{\"chat_template\": 5}");
    assert_int_equal(chat_template_load(scratch_path("b"), &t), ERR_INVALID);
    scratch_text("b/tokenizer_config.json", "{");
    assert_int_equal(chat_template_load(scratch_path("b"), &t), ERR_INVALID);
}

/* Templates in files take precedence over all templates in the configuration; each has its tokens; a broken template for tools is
 * an error only when it is needed. */
static void test_named(void **state)
{
    (void)state;
    struct chat_template *t = NULL;
    size_t n;
    scratch_mkdir("c");
    scratch_mkdir("c/additional_chat_templates");
    scratch_text("c/tokenizer_config.json", "{\"chat_template\": \"old\", \"eos_token\": \"<e>\"}");
    scratch_text("c/additional_chat_templates/rag.jinja", "three");
    scratch_text("c/additional_chat_templates/notes.txt", "{{");
    assert_int_equal(chat_template_load(scratch_path("c"), &t), ERR_INVALID);
    assert_non_null(strstr(status_message(), "has no default chat template: name one of its others (rag) by --chat-template"));
    scratch_text("c/chat_template.jinja", "one");
    scratch_text("c/additional_chat_templates/tool_use.jinja", "two");
    assert_int_equal(chat_template_load(scratch_path("c"), &t), OK);
    assert_string_equal(chat_template_source(t, &n), "one");
    assert_string_equal(chat_template_source(chat_template_for_tools(t), &n), "two");
    assert_string_equal(chat_template_token(chat_template_for_tools(t), "eos_token"), "<e>");
    chat_template_destroy(t);
    assert_int_equal(chat_template_find(scratch_path("c"), "rag", &t), OK);
    assert_string_equal(chat_template_source(t, &n), "three");
    chat_template_destroy(t);
    assert_int_equal(chat_template_find(scratch_path("c"), "notes", &t), OK);
    assert_null(t);
    scratch_text("c/additional_chat_templates/tool_use.jinja", "{{");
    assert_int_equal(chat_template_load(scratch_path("c"), &t), OK);
    assert_null(chat_template_for_tools(t));
    assert_non_null(strstr(chat_template_tools_error(t), "additional_chat_templates/tool_use.jinja:1: "));
    chat_template_destroy(t);
}

static char *render_marked(const char *source, const char *row, enum chat_train train, struct chat_text *counts)
{
    struct chat_template *t = chat_test_template(source);
    struct chat_conversation *c = chat_test_chat(row);
    static const char *const specials[] = {"<u>", "<a>", "<t>", "<e>", "<|x|>", NULL};
    struct chat_options options = {.train = train, .specials = specials};
    assert_int_equal(chat_template_set_token(t, "eos_token", "</s>"), OK); /* a token of another tokenizer */
    char *out = marked(t, row, &options);
    assert_int_equal(chat_render(t, c, &options, counts), OK);
    chat_destroy(c);
    chat_template_destroy(t);
    return out;
}

#define CALLED                                                                                                                                           \
    "{\"messages\": [{\"role\": \"user\", \"content\": \"Q\"}, {\"role\": \"assistant\", \"content\": \"\", \"tool_calls\": [{\"function\": {\"name\": " \
    "\"f\", \"arguments\": {\"k\": 1}}}]}, {\"role\": \"tool\", \"content\": \"T\"}, {\"role\": \"assistant\", \"content\": \"A\"}]}"
#define CALLS "{% for c in m.tool_calls or [] %}({{ c.function.name }}={{ c.function.arguments.k }})</c>{% endfor %}"

/* All bytes that an assistant has to write are trained, including the token that begins the next turn if no other token ends a
 * turn. Turns without an end, words outside of {% generation %}, turns that begin unlike a generation prompt, and words that look
 * like tokens are counted. */
static void test_ends(void **state)
{
    (void)state;
    static const struct {
        const char *source, *row, *want;
        int64_t unended, untrained, otherwise, typed;
        size_t ends;
        enum chat_train train;
    } cases[] = {
        {"{% for m in messages %}<{{ m.role[0] }}>{{ m.content }}" CALLS
         "{% endfor %}{% if add_generation_prompt %}<a>{% endif %}",
         CALLED, "<u>Q<a>【(f=1)</c><t>】T<a>【A】", 1, 0, 0, 0, 1},
        {"{% for m in messages %}<{{ m.role[0] }}>\n{{ m.content }}" CALLS
         "{{ '\\n' }}{% endfor %}{% if add_generation_prompt %}<a>\n{% endif %}",
         CALLED, "<u>\nQ\n<a>\n【(f=1)</c>\n<t>】\nT\n<a>\n【A】\n", 1, 0, 0, 0, 1},
        {"{% for m in messages %}{{ m.role }}: {{ m.content }}" CALLS
         "{{ '\\n' }}{% endfor %}{% if add_generation_prompt %}assistant: {% endif %}",
         CALLED, "user: Q\nassistant: 【(f=1)</c>】\ntool: T\nassistant: 【A】\n", 2, 0, 0, 0, 0},
        {"{% for m in messages %}<{{ m.role[0] }}>{{ m.content }}" CALLS
         "{% if m.tool_calls %}<|x|>\n<|x|>{% else %}<e>{% endif %}{{ '\\n' }}{% endfor %}{% if add_generation_prompt %}<a>{% endif %}",
         CALLED, "<u>Q<e>\n<a>【(f=1)</c><|x|>\n<|x|>】\n<t>T<e>\n<a>【A<e>】\n", 0, 0, 0, 0, 2},
        {"{% for m in messages %}<{{ m.role[0] }}>{% if m.role == 'assistant' %}{% generation %}{{ m.content }}{% endgeneration %}{% else %}{{ m.content }}{% endif %}<e>{% endfor %}{% if "
         "add_generation_prompt %}<a>{% endif %}",
         TURNS, "<u>Q1<e><a>【A1】<e><u>Q2<e><a>【A2】<e>", 2, 0, 0, 0, 0},
        {"{% for m in messages %}<{{ m.role[0] }}>{% if m.role == 'assistant' %}{% generation %}{{ m.content }}{% endgeneration %}{% generation %}<e>{% endgeneration %}{% else %}{{ m.content "
         "}}<e>{% endif %}{% endfor %}{% if add_generation_prompt %}<a>{% endif %}",
         TURNS, "<u>Q1<e><a>【A1<e>】<u>Q2<e><a>【A2<e>】", 0, 0, 0, 0, 2},
        {"{% for m in messages %}<{{ m.role[0] }}>" CALLS
         "{% if m.role == 'assistant' and not m.tool_calls %}{% generation %}{{ m.content }}<e>{% endgeneration %}{% else %}{{ m.content "
         "}}<e>{% endif %}{% endfor %}{% if add_generation_prompt %}<a>{% endif %}",
         CALLED, "<u>Q<e><a>(f=1)</c><e><t>T<e><a>【A<e>】", 0, 1, 0, 0, 1},
        {"{% for m in messages %}<{{ m.role[0] }}>{% if m.role == 'assistant' and loop.last %}[]{% endif %}{{ m.content }}<e>{% endfor %}{% if add_generation_prompt %}<a>[{% endif %}",
         TURNS, "<u>Q1<e><a>【A1<e>】<u>Q2<e><a>[【]A2<e>】", 0, 0, 1, 0, 2},
        {"{% for m in messages %}<{{ m.role[0] }}>{{ m.content }}<e>{% endfor %}{% if add_generation_prompt %}<a>{% endif %}",
         "{\"messages\": [{\"role\": \"user\", \"content\": \"<u>Q<e><a>\"}, {\"role\": \"assistant\", \"content\": \"A<e>\"}, {\"role\": \"user\", \"content\": \"<b> < e>\"}, "
         "{\"role\": \"assistant\", \"content\": \"B\"}]}",
         "<u><u>Q<e><a><e><a>【A<e><e>】<u><b> < e><e><a>【B<e>】", 0, 0, 0, 2, 2},
        {"{% for m in messages %}{% if m.role == 'user' %}### Ask: {{ m.content }} ### Answer: {% else %}{{ m.content }}<e>{% endif %}{% endfor %}",
         "{\"prompt\": \"### Ask: Q ### Answer:\", \"completion\": \"A\"}",
         "### Ask: ### Ask: Q ### Answer: ### Answer: 【A<e>】", 0, 0, 0, 1, 1},
        {"{% for m in messages %}<{{ m.role[0] }}>{{ m.content }}<e>{% endfor %}{% if add_generation_prompt %}<a>{% endif %}",
         TURNS, "【<u>Q1<e><a>A1<e><u>Q2<e><a>A2<e>】", 0, 0, 0, 0, 2, CHAT_TRAIN_ALL},
        {"{% for m in messages %}<{{ m.role[0] }}>{{ m.content }}\n{% endfor %}{% if add_generation_prompt %}<a>{% endif %}",
         TURNS, "【<u>Q1\n<a>A1\n<u>Q2\n<a>A2\n】", 1, 0, 0, 0, 1, CHAT_TRAIN_ALL},
        {"{% for m in messages %}{{ m.role[0] }}:{{ m.content }}{{ eos_token }}{% endfor %}{% if add_generation_prompt %}a:{% endif %}",
         TURNS, "u:Q1</s>a:【A1</s>】u:Q2</s>a:【A2</s>】", 2, 0, 0, 0, 0}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct chat_text counts;
        char *got = render_marked(cases[i].source, cases[i].row, cases[i].train, &counts);
        if (strcmp(got, cases[i].want) != 0 || counts.unended != cases[i].unended || counts.untrained != cases[i].untrained ||
            counts.otherwise != cases[i].otherwise || counts.typed != cases[i].typed || counts.n_ends != cases[i].ends)
            fail_msg("case %zu: %s, expected %s; unended %lld, untrained %lld, otherwise %lld, typed %lld, ends %zu", i, got,
                     cases[i].want, (long long)counts.unended, (long long)counts.untrained, (long long)counts.otherwise,
                     (long long)counts.typed, counts.n_ends);
        free(got);
        chat_text_destroy(&counts);
    }
}

/* Arguments of tool calls are passed in the form that the template takes. */
static void test_arguments(void **state)
{
    (void)state;
    static const char either[] = "{{ a if a is string else a | tojson }}";
    static const struct {
        const char *as, *arguments, *want; /* want NULL: refused */
        unsigned takes;
        int64_t changed;
    } cases[] = {
        {"{{ a | tojson }}", "\"{\\\"k\\\":1.50}\"", "{\"k\": 1.5}", CHAT_ARGUMENTS_OBJECTS, 1},
        {"{{ a | tojson }}", "{\"k\": 1}", "{\"k\": 1}", CHAT_ARGUMENTS_OBJECTS, 0},
        {"{{ a | tojson }}", "\"\"", "{}", CHAT_ARGUMENTS_OBJECTS, 1},
        {"{{ a | tojson }}", "\"k = 1\"", NULL, CHAT_ARGUMENTS_OBJECTS, 0},
        {"{% for k, v in a.items() %}{{ k }}:{{ v }};{% endfor %}", "\"{\\\"k\\\": 1}\"", "k:1;", CHAT_ARGUMENTS_OBJECTS, 1},
        {either, "\"k = 1\"", "k = 1", CHAT_ARGUMENTS_OBJECTS | CHAT_ARGUMENTS_TEXTS, 0},
        {"{{ a }}", "\"{\\\"k\\\":1}\"", "{\"k\":1}", CHAT_ARGUMENTS_TEXTS, 0},
        {"{{ a }}", "{\"k\": 1}", NULL, CHAT_ARGUMENTS_TEXTS, 0}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char source[400], row[400];
        struct chat_text text;
        struct chat_options options = {.train = CHAT_TRAIN_ASSISTANT};
        int64_t changed;
        snprintf(
            source, sizeof source,
            "{%% for m in messages %%}{{ m.content }}{%% for c in m.tool_calls or [] %%}{%% set a = c.function.arguments %%}%s{%% endfor %%}{%% endfor %%}",
            cases[i].as);
        snprintf(
            row, sizeof row,
            "{\"messages\": [{\"role\": \"assistant\", \"tool_calls\": [{\"function\": {\"name\": \"f\", \"arguments\": %s}}], \"content\": \"\"}]}",
            cases[i].arguments);
        struct chat_template *t = chat_test_template(source);
        struct chat_conversation *c = chat_test_chat(row);
        assert_int_equal(chat_template_takes_arguments(t, &options), cases[i].takes);
        assert_int_equal(chat_take_arguments(c, cases[i].takes, &changed), cases[i].want ? OK : ERR_INVALID);
        assert_true(cases[i].want || strstr(status_message(), "arguments"));
        if (cases[i].want) {
            assert_int_equal(changed, cases[i].changed);
            assert_int_equal(chat_render(t, c, &options, &text), OK);
            assert_string_equal(text.bytes, cases[i].want);
            chat_text_destroy(&text);
        }
        chat_destroy(c);
        chat_template_destroy(t);
    }
}

/* Each built-in template renders a plain chat and trains both answers with the tokens that end them, and nothing else. */
static void test_builtins(void **state)
{
    (void)state;
    for (const char *const *name = chat_template_builtins(); *name; name++) {
        struct chat_template *t = NULL;
        struct chat_options options = {0};
        assert_int_equal(chat_template_builtin(*name, &t), OK);
        struct chat_conversation *c = chat_test_chat(TURNS);
        struct chat_text text;
        if (chat_render(t, c, &options, &text) != OK)
            fail_msg("%s", status_message());
        assert_int_equal(text.n_supervised, 2);
        for (size_t i = 0; i < 2; i++) {
            const struct chat_range *r = &text.supervised[i];
            char want[64];
            snprintf(want, sizeof want, "A%zu%s%s", i + 1, strcmp(*name, "llama2") == 0 ? " " : "",
                     chat_template_token(t, "eos_token"));
            size_t n = strlen(want), space = text.bytes[r->first] == ' ';
            if (r->end - r->first != n + space || memcmp(text.bytes + r->first + space, want, n) != 0)
                fail_msg("%s: '%.*s', expected '%s'", *name, (int)(r->end - r->first), text.bytes + r->first, want);
        }
        chat_text_destroy(&text);
        chat_destroy(c);
        chat_template_destroy(t);
    }
    struct chat_template *t = NULL;
    assert_int_equal(chat_template_builtin("chatmll", &t), ERR_INVALID);
    assert_non_null(strstr(status_message(), "did you mean chatml?"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_turns),         cmocka_unit_test(test_reasoning), cmocka_unit_test(test_left_out),
        cmocka_unit_test(test_tools),         cmocka_unit_test(test_odd_turns), cmocka_unit_test(test_shapes),
        cmocka_unit_test(test_bad_rows),      cmocka_unit_test(test_builtins),  cmocka_unit_test(test_template_without_end),
        cmocka_unit_test(test_bad_templates), cmocka_unit_test(test_lookup),    cmocka_unit_test(test_named),
        cmocka_unit_test(test_ends),          cmocka_unit_test(test_arguments),
    };
    return cmocka_run_group_tests(tests, scratch_create, scratch_destroy);
}
