/* Tests marks of rows and messages that say whether they are trained, as other trainers spell them, and members beside the
 * messages: each is obeyed or refused. */
#include "chat_test.h"
#include "data/row_members.h"

static const char chatml[] =
    "{% for m in messages %}<{{ m.role }}>{{ m.reasoning_content }}{{ m.content }}{% for c in m.tool_calls or [] %}{{ c.function.name }}({{ "
    "c.function.arguments | tojson }}){% endfor %}<|e|>{% endfor %}{% if add_generation_prompt %}<assistant>{% endif %}";

/* Writes the rendered row, with supervised parts in brackets, or the error. */
static void render(const char *row, enum chat_train train, char out[1000])
{
    struct chat_template *t = chat_test_template(chatml);
    struct chat_conversation *c = NULL;
    struct chat_options options = {.train = train, .strict = 1};
    struct chat_text text = {0};
    size_t n = 0;
    if (chat_read(row, strlen(row), "r", 7, &c) != OK || chat_render(t, c, &options, &text) != OK)
        snprintf(out, 1000, "%s", status_message());
    for (size_t at = 0, k = 0; at <= text.n && text.bytes; at++) {
        if (k < text.n_supervised && at == text.supervised[k].end)
            k += (out[n++] = ']') != 0;
        if (k < text.n_supervised && at == text.supervised[k].first)
            out[n++] = '[';
        out[n++] = text.bytes[at];
    }
    chat_text_destroy(&text);
    chat_destroy(c);
    chat_template_destroy(t);
}

#define ROW(mark)                                                                                                 \
    "{\"messages\": [{\"role\": \"user\", \"content\": \"Q\"}, {\"role\": \"assistant\", \"content\": \"A\"" mark \
    "}, {\"role\": \"user\", \"content\": \"Q\"}, {\"role\": \"assistant\", \"content\": \"B\"}]}"
#define GPT(mark)                                                                                             \
    "{\"conversations\": [{\"from\": \"human\", \"value\": \"Q\"}, {\"from\": \"gpt\", \"value\": \"A\"" mark \
    "}, {\"from\": \"human\", \"value\": \"Q\"}, {\"from\": \"gpt\", \"value\": \"B\"}]}"
#define SIDES(mark)                                                                                                               \
    "{\"prompt\": [{\"role\": \"user\", \"content\": \"Q\"}], \"completion\": [{\"role\": \"assistant\", \"content\": \"A\"" mark \
    "}, {\"role\": \"user\", \"content\": \"Q\"}, {\"role\": \"assistant\", \"content\": \"B\"}]}"
#define ONE(beside) \
    "{\"messages\": [{\"role\": \"user\", \"content\": \"Q\"}, {\"role\": \"assistant\", \"content\": \"A\"}]" beside "}"
#define BOTH "<user>Q<|e|><assistant>[A<|e|>]<user>Q<|e|><assistant>[B<|e|>]"
#define SECOND "<user>Q<|e|><assistant>A<|e|><user>Q<|e|><assistant>[B<|e|>]"

/* Checks that members that are not read of a .parquet change nothing. */
static void expect_selected(const char *row, enum chat_train train, const char *want)
{
    char got[1000] = "", *selected;
    const char *key;
    json_t *object = json_loads(row, 0, NULL), *value;
    void *next;
    json_object_foreach_safe(object, next, key, value)
    {
        if (!row_members_are_read(LINES_CHATS, NULL, key))
            json_object_del(object, key);
    }
    selected = json_dumps(object, 0);
    render(selected, train, got);
    if (strcmp(got, want) != 0)
        fail_msg("%s\ngives    %s\nwhere %s gives %s", selected, got, row, want);
    free(selected);
    json_decref(object);
}

static void expect(const char *row, enum chat_train train, const char *want)
{
    char got[1000] = "";
    render(row, train, got);
    expect_selected(row, train, got);
    if (want[0] == '<' || want[0] == '[' ? strcmp(got, want) != 0 : !strstr(got, want) || strncmp(got, "r:7: ", 5) != 0)
        fail_msg("%s\ngives    %s\nexpected %s", row, got, want);
}

static void test_messages(void **state)
{
    (void)state;
    static const char *const off[][3] = {
#define MARKED(mark) {ROW(mark), GPT(mark), SIDES(mark)}
        MARKED(", \"weight\": 0"),       MARKED(", \"weight\": 0.0"),     MARKED(", \"train\": false"),
        MARKED(", \"train\": 0"),        MARKED(", \"training\": false"), MARKED(", \"loss\": false"),
        MARKED(", \"loss_weight\": 0"),  MARKED(", \"masked\": true"),    MARKED(", \"loss_scale\": 0.0"),
        MARKED(", \"trainable\": false")};
    static const char *const on[][3] = {
        MARKED(", \"weight\": 1"),   MARKED(", \"train\": true"),
        MARKED(", \"loss\": 1.0"),   MARKED(", \"masked\": false"),
        MARKED(", \"skip\": false"), MARKED(", \"metadata\": {\"title\": \"t\", \"train\": true, \"loss\": 0, \"tokens\": 0}"),
        MARKED(", \"train\": null"), MARKED(", \"name\": \"weight\", \"mask\": null, \"loss_note\": \"text\"")};
    static const char *const refused[][3] = {
        MARKED(", \"weight\": 0.5"),
        MARKED(", \"weight\": -1"),
        MARKED(", \"train\": \"false\""),
        MARKED(", \"mask\": true"),
        MARKED(", \"train_detail\": [{\"begin_offset\": 0, \"end_offset\": 0, \"train\": false}]"),
        MARKED(", \"training_detail\": []"),
        MARKED(", \"label\": false"),
        MARKED(", \"ignoreLoss\": true"),
        MARKED(", \"train\": true, \"weight\": 0"),
        MARKED(", \"token_weights\": [1]"),
        MARKED(", \"metadata\": {\"train\": false}"),
        MARKED(", \"extra\": {\"id\": 7, \"weight\": 0}"),
        MARKED(", \"meta\": {\"masked\": true}"),
        MARKED(", \"skip\": true"),
        MARKED(", \"excluded\": 1")};
    for (size_t k = 0; k < 3; k++) {
        for (size_t i = 0; i < sizeof off / sizeof *off; i++)
            expect(off[i][k], CHAT_TRAIN_ASSISTANT, SECOND);
        for (size_t i = 0; i < sizeof on / sizeof *on; i++)
            expect(on[i][k], CHAT_TRAIN_ASSISTANT, BOTH);
        for (size_t i = 0; i < sizeof refused / sizeof *refused; i++)
            expect(refused[i][k], CHAT_TRAIN_ASSISTANT, "");
    }
    expect(
        "{\"messages\": [{\"role\": \"user\", \"content\": \"Q\", \"train\": true}, {\"role\": \"assistant\", \"content\": \"A\"}]}",
        CHAT_TRAIN_ASSISTANT, "message 1 (user) says that it is trained");
    expect(
        "{\"messages\": [{\"role\": \"user\", \"content\": \"Q\", \"train\": true}, {\"role\": \"assistant\", \"content\": \"A\"}]}",
        CHAT_TRAIN_ALL, "[<user>Q<|e|><assistant>A<|e|>]");
    expect(
        "{\"messages\": [{\"role\": \"user\", \"content\": [{\"type\": \"text\", \"text\": \"Q\", \"train\": false}]}, {\"role\": \"assistant\", \"content\": \"A\"}]}",
        CHAT_TRAIN_ASSISTANT, "part 1 of message 1 says that it is not trained");
    expect(ROW(", \"tool_calls\": [{\"function\": {\"name\": \"f\", \"arguments\": {}}, \"weight\": 0}]"), CHAT_TRAIN_ASSISTANT,
           "call 1 of message 2 says");
    for (size_t k = 0; k < 2; k++) {
        expect(k ? GPT(", \"images\": [\"a\"]") : ROW(", \"images\": [\"a\"]"), CHAT_TRAIN_ASSISTANT,
               "message 2 has \"images\", which is not read");
        expect(k ? GPT(", \"audio\": {\"id\": 1}") : ROW(", \"audio\": {\"id\": 1}"), CHAT_TRAIN_ASSISTANT,
               "message 2 has \"audio\"");
        expect(k ? GPT(", \"images\": [], \"audio\": null, \"refusal\": null")
                 : ROW(", \"images\": [], \"audio\": null, \"refusal\": null"),
               CHAT_TRAIN_ASSISTANT, BOTH);
    }
    expect(ROW(", \"refusal\": \"no\""), CHAT_TRAIN_ASSISTANT, "message 2 has \"refusal\"");
    expect(ROW(", \"function_call\": {\"name\": \"f\"}"), CHAT_TRAIN_ASSISTANT,
           "message 2 has a \"function_call\": calls are read of");
}

/* A mark takes precedence over --train-on. */
static void test_all(void **state)
{
    (void)state;
    expect(ROW(", \"train\": false"), CHAT_TRAIN_ALL, "[<user>Q<|e|><assistant>]A<|e|>[<user>Q<|e|><assistant>B<|e|>]");
    expect(ROW(""), CHAT_TRAIN_ALL, "[<user>Q<|e|><assistant>A<|e|><user>Q<|e|><assistant>B<|e|>]");
    expect(
        "{\"messages\": [{\"role\": \"user\", \"content\": \"Q\", \"weight\": 0}, {\"role\": \"assistant\", \"content\": \"A\"}]}",
        CHAT_TRAIN_ALL, "[<user>]Q[<|e|><assistant>A<|e|>]");
    expect(
        "{\"messages\": [{\"role\": \"user\", \"content\": \"Q\"}, {\"role\": \"assistant\", \"content\": \"A\"}, {\"role\": \"assistant\", \"content\": \"B\", "
        "\"train\": false}]}",
        CHAT_TRAIN_LAST, "<user>Q<|e|><assistant>[A<|e|>]<assistant>B<|e|>");
}

static void test_rows(void **state)
{
    (void)state;
    static const char *const fine[] = {
        ONE(", \"train\": true, \"weight\": 1"),
        ONE(", \"mask\": \"User\""),
        ONE(", \"skip\": false, \"prompt_length\": 3, \"metadata\": {\"split\": \"train\", \"score\": 0, \"loss\": 0.0, \"is_valid\": false}"),
        ONE(", \"kto_tag\": true"),
        ONE(", \"label\": \"safe\""),
        ONE(", \"weight\": null, \"training_step\": 7, \"loss\": 2.5, \"split\": \"train\""),
        ONE(", \"kto_tag\": 1, \"label\": 0, \"reasoning\": \"on\", \"context\": \" Q\""),
        ONE(", \"images\": [], \"videos\": null, \"system\": \"\", \"history\": []"),
        ONE(", \"prompt\": \" Q\", \"text\": \"<user>\""),
        ONE(", \"chosen\": [{\"role\": \"assistant\", \"content\": \"A\"}], \"rejected\": [{\"role\": \"assistant\", \"content\": \"C\"}]")};
    static const char *const refused[][2] = {
        {ONE(", \"train\": false"), "its \"train\" says that the row"},
        {ONE(", \"metadata\": {\"source\": \"s\", \"train\": false}"), "its \"metadata\" has \"train\""},
        {ONE(", \"skip\": true"), "its \"skip\" may say"},
        {ONE(", \"excluded\": \"true\""), "its \"excluded\" may say"},
        {ONE(", \"weight\": 0.5"), "its \"weight\" says"},
        {ONE(", \"weight\": 0"), "its \"weight\""},
        {ONE(", \"sample_weight\": 2"), "its \"sample_weight\""},
        {ONE(", \"mask\": \"Assistant\""), "its \"mask\""},
        {ONE(", \"kto_tag\": false"), "\"kto_tag\": false marks"},
        {ONE(", \"label\": false"), "\"label\": false marks"},
        {ONE(", \"train_on_inputs\": true"), "\"train_on_inputs\" may say"},
        {ONE(", \"mask_history\": true"), "mask_history"},
        {ONE(", \"completion_mask\": [0, 1]"), "completion_mask"},
        {ONE(", \"weights\": [0, 1]"), "weights"},
        {ONE(", \"train\": \"false\""), "its \"train\""},
        {ONE(", \"images\": [\"a.png\"]"), "it has \"images\""},
        {ONE(", \"functions\": [{\"name\": \"f\"}]"), "it has \"functions\""},
        {ONE(", \"chat_template\": \"{{ messages }}\""), "it has \"chat_template\" beside its conversation"},
        {ONE(", \"completion\": \"C\""), "it has a \"completion\" beside"},
        {ONE(", \"response\": \"C\""), "it has a \"response\""},
        {ONE(", \"history\": [[\"a\", \"b\"]]"), "history"},
        {ONE(", \"rejected\": \"C\""), "it has a \"rejected\""},
        {ONE(", \"chosen\": {\"from\": \"gpt\", \"value\": \"C\"}"), "it has a \"chosen\""},
        {"{\"prompt\": \"Q\", \"completion\": \"A\", \"input\": \"more\"}", "it has a \"input\""},
        {"{\"prompt\": \"Q\", \"completion\": \"A\", \"label\": false}", "\"label\": false"},
        {ONE(", \"kto_tag\": 0"), "\"kto_tag\": false"},
        {ONE(", \"kto_label\": \"false\""), "\"kto_label\": false"},
        {ONE(", \"label\": \"False\""), "\"label\": false"},
        {ONE(", \"train_on\": \"last\""), "its \"train_on\" may"},
        {ONE(", \"context\": \"other\""), "it has a \"context\""},
        {ONE(", \"developer\": \"D\""), "\"developer\""},
        {ONE(", \"enable_thinking\": false"), "it has \"enable_thinking\""},
        {ONE(", \"reasoning_effort\": \"high\""), "\"reasoning_effort\""},
        {"{\"prompt\": \"Q\", \"completion\": \"A\", \"reasoning_content\": \"so it is\"}", "it has a \"reasoning_content\""},
        {"{\"instruction\": \"Q\", \"output\": \"A\", \"thinking\": \"so it is\"}", "it has a \"thinking\""},
        {"{\"instruction\": \"Q\", \"output\": \"A\", \"prompt\": \"P\"}", "it has a \"prompt\" beside"}};
    for (size_t i = 0; i < sizeof fine / sizeof *fine; i++)
        expect(fine[i], CHAT_TRAIN_ASSISTANT, "<user>Q<|e|><assistant>[A<|e|>]");
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++)
        expect(refused[i][0], CHAT_TRAIN_ASSISTANT, refused[i][1]);
    static const char *const texts[][2] = {
        {"{\"text\": \"a\", \"train\": false}", "its \"train\""},
        {"{\"text\": \"a\", \"weight\": 0.3}", "its \"weight\""},
        {"{\"text\": \"a\", \"prompt_length\": 3}", "its \"prompt_length\" may say where"},
        {"{\"text\": \"a\", \"meta\": {\"train\": 0}}", "its \"meta\" has \"train\""},
        {"{\"text\": \"a\", \"ignored\": true}", "its \"ignored\" may say"},
        {"{\"text\": \"a\", \"length\": 3, \"token_count\": 1, \"prompt_tokens\": 4, \"meta\": {\"weight\": 0.4}}", NULL},
        {"{\"text\": \"a\", \"label\": false, \"train\": 1, \"loss\": 2.5}", NULL}};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        json_t *row = json_loads(texts[i][0], 0, NULL);
        assert_int_equal(chat_check_row(row, CHAT_ROW_TEXT, "r", 7), texts[i][1] ? ERR_INVALID : OK);
        assert_true(!texts[i][1] || strstr(status_message(), texts[i][1]));
        json_decref(row);
    }
}

/* A system prompt beside the messages becomes the first message, in every form of conversation. */
static void test_system(void **state)
{
    (void)state;
    static const char want[] = "<system>S<|e|><user>Q<|e|><assistant>[A<|e|>]";
    expect(ONE(", \"system\": \"S\""), CHAT_TRAIN_ASSISTANT, want);
    expect(ONE(", \"system_prompt\": \"S\", \"system\": null"), CHAT_TRAIN_ASSISTANT, want);
    expect(
        "{\"system\": \"S\", \"conversations\": [{\"from\": \"Human\", \"value\": \"Q\"}, {\"from\": \"gpt\", \"value\": \"A\"}]}",
        CHAT_TRAIN_ASSISTANT, want);
    expect("{\"system_message\": \"S\", \"prompt\": \"Q\", \"completion\": \"A\"}", CHAT_TRAIN_ASSISTANT, want);
    expect("{\"system\": \"S\", \"instruction\": \"Q\", \"output\": \"A\"}", CHAT_TRAIN_ASSISTANT, want);
    expect(
        "{\"system\": \"S\", \"messages\": [{\"role\": \"system\", \"content\": \"S \"}, {\"role\": \"user\", \"content\": \"Q\"}, {\"role\": \"assistant\", \"content\": \"A\"}]}",
        CHAT_TRAIN_ASSISTANT, "<system>S <|e|><user>Q<|e|><assistant>[A<|e|>]");
    expect(
        "{\"system\": \"T\", \"messages\": [{\"role\": \"system\", \"content\": \"S\"}, {\"role\": \"user\", \"content\": \"Q\"}, {\"role\": \"assistant\", \"content\": \"A\"}]}",
        CHAT_TRAIN_ASSISTANT, "it has a system, and the conversation begins with another one");
    expect(ONE(", \"system\": [\"S\"]"), CHAT_TRAIN_ASSISTANT, "system is not a string");
}

/* All members of a ShareGPT turn are kept, and its tool calls are read. */
static void test_turns(void **state)
{
    (void)state;
    expect(GPT(", \"reasoning_content\": \"R\""), CHAT_TRAIN_ASSISTANT,
           "<user>Q<|e|><assistant>[RA<|e|>]<user>Q<|e|><assistant>[B<|e|>]");
    expect(GPT(", \"tool_calls\": [{\"function\": {\"name\": \"f\", \"arguments\": {}}}]"), CHAT_TRAIN_ASSISTANT,
           "<user>Q<|e|><assistant>[Af({})<|e|>]<user>Q<|e|><assistant>[B<|e|>]");
    expect(
        "{\"conversations\": [{\"from\": \"human\", \"value\": \"Q\"}, {\"from\": \"function_call\", \"value\": \"{\\\"name\\\": \\\"f\\\", \\\"arguments\\\": {\\\"a\\\": 1}}\"}, "
        "{\"from\": \"observation\", \"value\": \"T\"}, {\"from\": \"gpt\", \"value\": \"A\"}]}",
        CHAT_TRAIN_ASSISTANT, "<user>Q<|e|><assistant>[f({\"a\": 1})<|e|>]<tool>T<|e|><assistant>[A<|e|>]");
    expect("{\"conversations\": [{\"from\": \"human\", \"value\": \"Q\"}, {\"from\": \"function_call\", \"value\": \"f()\"}]}",
           CHAT_TRAIN_ASSISTANT, "turn 2 is a call of a tool and no JSON");
    expect(GPT(", \"content\": \"other\""), CHAT_TRAIN_ASSISTANT, "turn 2 has a \"value\" and a \"content\"");
    expect(GPT(", \"role\": \"user\""), CHAT_TRAIN_ASSISTANT, "turn 2 is from 'gpt', and its role is 'user'");
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_messages), cmocka_unit_test(test_all), cmocka_unit_test(test_rows),
                                       cmocka_unit_test(test_system), cmocka_unit_test(test_turns)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
