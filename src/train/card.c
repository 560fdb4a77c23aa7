#include "train/card.h"

#include "base/num.h"
#include "base/units.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- parts of facts ---- */

static const char *text_of(const json_t *o, const char *key)
{
    return json_string_value(json_object_get(o, key));
}

/* Returns a text that fits on one line of YAML or of a table; "" if it is absent or would not fit. */
static const char *word_of(const json_t *o, const char *key)
{
    const char *text = text_of(o, key);
    return text && !strpbrk(text, "\r\n|") ? text : "";
}

static double number_of(const json_t *o, const char *key)
{
    const json_t *x = json_object_get(o, key);
    return json_is_number(x) ? json_number_value(x) : NAN;
}

static const char *count_of(const json_t *o, const char *key, char text[32])
{
    return units_format_count((int64_t)json_integer_value(json_object_get(o, key)), text);
}

/* Prints a span of code on one line, without characters that would end the span or the line. */
static void print_code(const char *text, FILE *f)
{
    fputc('`', f);
    for (; text && *text; text++)
        if (*text != '`' && (unsigned char)*text >= ' ')
            fputc(*text == '|' ? '/' : *text, f);
    fputc('`', f);
}

static const json_t *base_of(const json_t *facts)
{
    return json_object_get(facts, "base");
}

/* ---- front matter ---- */

/* Prints a line of YAML with a quoted string. */
static void print_value(const char *key, const char *text, FILE *f)
{
    fprintf(f, "%s: \"", key);
    for (; *text; text++)
        if (*text == '"' || *text == '\\')
            fprintf(f, "\\%c", *text);
        else if ((unsigned char)*text >= ' ')
            fputc(*text, f);
    fputs("\"\n", f);
}

static void print_front_matter(const json_t *facts, enum card_form form, FILE *f)
{
    static const char *const keys[] = {"license", "license_name", "license_link"};
    const json_t *base = base_of(facts);
    fprintf(f, "---\nlibrary_name: %s\n", form == CARD_ADAPTER ? "peft" : "transformers");
    if (word_of(base, "id")[0])
        print_value("base_model", word_of(base, "id"), f);
    else if (base && !json_is_true(json_object_get(facts, "preset")))
        fputs("# base_model: ORG/NAME of the hub belongs here; the base was read from a local directory\n", f);
    for (int i = 0; i < 3; i++)
        if (word_of(base, keys[i])[0])
            print_value(keys[i], word_of(base, keys[i]), f);
    fputs("pipeline_tag: text-generation\ntags:\n- ltrain\n", f);
    if (form != CARD_MODEL)
        fputs("- lora\n", f);
    fputs("---\n\n", f);
}

/* ---- text ---- */

static void print_head(const json_t *facts, enum card_form form, FILE *f)
{
    static const char *const what[] = {"A model that was trained on", "A LoRA adapter that was trained",
                                       "A LoRA adapter merged into its base; it was trained"};
    const json_t *base = base_of(facts);
    const char *name = word_of(facts, "name"), *id = text_of(base, "id");
    fprintf(f, "# %s\n\n%s", name[0] ? name : "A model of ltrain", what[form]);
    if (json_is_true(json_object_get(facts, "preset"))) {
        fputs(form == CARD_MODEL ? " from random parameters of the preset " : " beside random parameters of the preset ", f);
        print_code(text_of(base, "name"), f);
    } else if (base) {
        fputs(form == CARD_MODEL ? " from " : " beside ", f);
        print_code(id ? id : text_of(base, "name"), f);
    }
    fputs(".\n", f);
}

static void print_names(const char *what, const json_t *items, FILE *f)
{
    double all = 0;
    for (size_t i = 0; i < json_array_size(items); i++)
        all += json_number_value(json_object_get(json_array_get(items, i), "weight"));
    if (json_array_size(items) == 0)
        return;
    fprintf(f, "| %s | ", what);
    for (size_t i = 0; i < json_array_size(items); i++) {
        const json_t *x = json_array_get(items, i);
        if (i > 0)
            fputs(", ", f);
        print_code(text_of(x, "name"), f);
        if (isfinite(number_of(x, "weight")) && all > 0)
            fprintf(f, " (%.4g%% of the tokens)", 100 * number_of(x, "weight") / all);
    }
    fputs(" |\n", f);
}

static void print_data(const json_t *facts, FILE *f)
{
    const json_t *d = json_object_get(facts, "data");
    char text[32];
    if (!d)
        return;
    fputs("\n## Data\n\n| | |\n|---|---|\n", f);
    print_names("files", json_object_get(d, "sources"), f);
    fprintf(f, "| documents | %s |\n", count_of(d, "documents", text));
    fprintf(f, "| tokens | %s, ", count_of(d, "tokens", text));
    fprintf(f, "of which sequences hold %s |\n", count_of(d, "kept", text));
    fprintf(f, "| supervised tokens | %s |\n", count_of(d, "supervised", text));
    fprintf(f, "| sequences | %s for training, ", count_of(d, "training_sequences", text));
    fprintf(f, "%s held out |\n", count_of(d, "held_out_sequences", text));
    print_names("held out", json_object_get(d, "held_out"), f);
    if (number_of(d, "held_out_fraction") > 0)
        fprintf(f, "| held out | %.4g%% of each source, its last documents |\n", 100 * number_of(d, "held_out_fraction"));
}

static void print_lengths(const json_t *facts, FILE *f)
{
    const json_t *all = json_object_get(facts, "sequence_lengths");
    char text[32];
    if (json_array_size(all) == 0)
        return;
    fputs("| sequence length | ", f);
    for (size_t i = 0; i < json_array_size(all); i++)
        fprintf(f, "%s%s", i ? ", then " : "", units_format_count((int64_t)json_integer_value(json_array_get(all, i)), text));
    fputs(" tokens |\n", f);
}

static void print_settings(const json_t *s, FILE *f)
{
    char text[32];
    if (!s)
        return;
    fprintf(f, "| sequences a step | %s |\n", count_of(s, "sequences_per_step", text));
    const double lr = number_of(s, "learning_rate"), b1 = number_of(s, "beta1"), b2 = number_of(s, "beta2"),
                 eps = number_of(s, "eps"), decay = number_of(s, "weight_decay"), clip = number_of(s, "clip");
    if (isfinite(lr)) {
        fprintf(f, "| learning rate | %g, %s over %lld steps", lr, word_of(s, "schedule"),
                (long long)json_integer_value(json_object_get(s, "steps")));
        fprintf(f, ", warm-up %s steps |\n", count_of(s, "warmup", text));
    }
    if (isfinite(b1 + b2 + eps + decay + clip))
        fprintf(f, "| optimizer | AdamW, betas %g and %g, eps %g, weight decay %g, gradient norm clipped at %g |\n", b1, b2, eps,
                decay, clip);
    fprintf(f, "| types | %s; moments %s%s |\n", word_of(s, "dtype"), word_of(s, "optim_dtype"),
            strcmp(word_of(s, "base"), "nf4") == 0     ? "; the base's frozen matrices in NF4"
            : strcmp(word_of(s, "base"), "int8") == 0  ? "; the base's frozen matrices in int8"
            : strcmp(word_of(s, "base"), "mxfp4") == 0 ? "; the base's experts in MXFP4"
                                                       : "");
    fprintf(f, "| mesh | %s, ZeRO stage %lld |\n", word_of(s, "mesh"), (long long)json_integer_value(json_object_get(s, "zero")));
    fprintf(f, "| seed | %lld |\n", (long long)json_integer_value(json_object_get(s, "seed")));
}

/* Prints "KEY VALUE" of a former value that differs from the present one. */
static void print_former(const char *key, const json_t *was, const json_t *is, const char **comma, FILE *f)
{
    if (!was || json_equal(was, is))
        return;
    char *text = json_is_string(was) ? strdup(json_string_value(was)) : json_dumps(was, JSON_ENCODE_ANY | JSON_REAL_PRECISION(6));
    fprintf(f, "%s%s %s", *comma, key, json_is_null(was) ? "none" : text ? text : "?");
    free(text);
    *comma = ", ";
}

/* Prints settings that differed in earlier steps. */
static void print_earlier(const json_t *facts, FILE *f)
{
    const json_t *all = json_object_get(facts, "earlier"), *now = json_object_get(facts, "settings");
    for (size_t i = 0; i < json_array_size(all); i++) {
        const json_t *e = json_array_get(all, i);
        const char *key, *comma = "";
        char text[32];
        json_t *was;
        fprintf(f, "| until step %s | ", count_of(e, "until", text));
        json_object_foreach(json_object_get(e, "settings"), key, was)
            print_former(key, was, json_object_get(now, key), &comma, f);
        print_former("sequence_lengths", json_object_get(e, "sequence_lengths"), json_object_get(facts, "sequence_lengths"),
                     &comma, f);
        print_former("lora", json_object_get(e, "lora"), json_object_get(facts, "lora"), &comma, f);
        fputs(" |\n", f);
    }
}

static void print_losses(const json_t *facts, FILE *f)
{
    if (isfinite(number_of(facts, "first_loss")) && isfinite(number_of(facts, "last_loss")))
        fprintf(f, "| training loss | %.4f in the first step, %.4f in the last one |\n", number_of(facts, "first_loss"),
                number_of(facts, "last_loss"));
}

static void print_training(const json_t *facts, FILE *f)
{
    char text[32];
    if (!json_object_get(facts, "step"))
        return;
    fprintf(f, "\n## Training\n\n| | |\n|---|---|\n| steps | %s |\n", count_of(facts, "step", text));
    if (json_object_get(facts, "trained_tokens")) {
        fprintf(f, "| tokens trained on | %s, ", count_of(facts, "trained_tokens", text));
        fprintf(f, "%s of them supervised |\n", count_of(facts, "trained_targets", text));
    }
    print_lengths(facts, f);
    if (word_of(facts, "positions")[0])
        fprintf(f, "| rotary positions | %s |\n", word_of(facts, "positions"));
    if (text_of(facts, "lora")) {
        fputs("| LoRA | ", f);
        print_code(text_of(facts, "lora"), f);
        fputs(" |\n", f);
    }
    if (json_object_get(facts, "parameters")) {
        fprintf(f, "| parameters | %s", count_of(facts, "parameters", text));
        fprintf(f, ", %s of them trained |\n", count_of(facts, "trained_parameters", text));
    }
    print_settings(json_object_get(facts, "settings"), f);
    print_earlier(facts, f);
    print_losses(facts, f);
}

static void print_evaluation(const json_t *facts, FILE *f)
{
    const json_t *all = json_object_get(facts, "evaluations");
    char step[32], tokens[32];
    if (json_array_size(all) == 0)
        return;
    fputs(
        "\n## Evaluation\n\nOn text that was held out:\n\n| step | loss (nats a token) | perplexity | tokens |\n|---|---|---|---|\n",
        f);
    for (size_t i = 0; i < json_array_size(all); i++) {
        const json_t *e = json_array_get(all, i);
        const double loss = number_of(e, "loss");
        if (isfinite(loss))
            fprintf(f, "| %s | %.4f | %.4g | %s |\n", count_of(e, "step", step), loss, exp(loss), count_of(e, "tokens", tokens));
    }
}

/* Prints rotary positions, which PEFT and vLLM do not read from ltrain_run.json. */
static void print_positions(const json_t *facts, FILE *f)
{
    if (text_of(facts, "rope") || isfinite(number_of(facts, "rope_base")))
        fprintf(
            f,
            "\nIt was trained with other rotary positions than the base's config.json has: %s.\n`ltrain sample`, `eval` and `export` "
            "take them from `ltrain_run.json`; PEFT and vLLM do not, and need\nthem in the base's config.json.\n",
            word_of(facts, "positions"));
}

/* Quantisation of the base while it was loaded, which the base's files do not say; NULL: none. */
struct quantisation {
    const char *word, *name, *config;
};

static const struct quantisation *beside(const json_t *facts)
{
    static const struct quantisation all[] = {
        {"nf4", "NF4", "load_in_4bit=True, bnb_4bit_quant_type=\"nf4\", bnb_4bit_use_double_quant=True"},
        {"int8", "int8", "load_in_8bit=True"},
    };
    const json_t *s = json_object_get(facts, "settings");
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (strcmp(word_of(s, "base"), all[i].word) == 0 && !json_is_true(json_object_get(s, "base_is_quantised")))
            return &all[i];
    return NULL;
}

static void print_use(const json_t *facts, enum card_form form, FILE *f)
{
    const char *class = form == CARD_ADAPTER ? "AutoPeftModelForCausalLM" : "AutoModelForCausalLM",
               *tokenizer = text_of(json_object_get(facts, "data"), "tokenizer");
    const int reads = !tokenizer || strcmp(tokenizer, "bytes") != 0;
    fprintf(f, "\n## Use\n\n```python\nfrom %s import %s\n", form == CARD_ADAPTER ? "peft" : "transformers", class);
    const struct quantisation *q = form == CARD_ADAPTER ? beside(facts) : NULL;
    if (reads || q)
        fprintf(f, "from transformers import %s\n",
                !q      ? "AutoTokenizer"
                : reads ? "AutoTokenizer, BitsAndBytesConfig"
                        : "BitsAndBytesConfig");
    fputs("\nwhere = \"path/of/this/directory\"\n", f);
    if (q)
        fprintf(f, "%s = BitsAndBytesConfig(%s)\n", q->word, q->config);
    fprintf(f, "model = %s.from_pretrained(where%s%s)\n", class, q ? ", quantization_config=" : "", q ? q->word : "");
    if (reads)
        fputs("tokenizer = AutoTokenizer.from_pretrained(where)\n", f);
    fputs("```\n", f);
    if (!reads)
        fputs("\nThere is no tokenizer: it was trained on bytes, as ids 0 to 255, or on files of ids.\n", f);
    if (form == CARD_ADAPTER)
        fputs("\nPEFT looks for the base where `adapter_config.json` says (`base_model_name_or_path`).\n", f);
    if (q)
        fprintf(
            f,
            "\nIt was trained beside its base in %s, which is made while the base is loaded; beside other weights it computes something else.\n",
            q->name);
    if (form == CARD_ADAPTER)
        print_positions(facts, f);
}

static void print_origin(const json_t *facts, FILE *f)
{
    const json_t *commands = json_object_get(facts, "commands");
    const char *version = word_of(facts, "ltrain");
    fprintf(f, "\n## Made with\n\n%s%s\n", version[0] ? version : "ltrain", json_array_size(commands) > 0 ? ":\n" : "");
    for (size_t i = 0; i < json_array_size(commands); i++) {
        fputs("    ", f);
        for (const char *c = json_string_value(json_array_get(commands, i)); c && *c; c++)
            fputc((unsigned char)*c < ' ' ? ' ' : *c, f);
        fputc('\n', f);
    }
}

void card_print(const json_t *facts, enum card_form form, FILE *f)
{
    print_front_matter(facts, form, f);
    print_head(facts, form, f);
    print_data(facts, f);
    print_training(facts, f);
    print_evaluation(facts, f);
    print_use(facts, form, f);
    print_origin(facts, f);
}
