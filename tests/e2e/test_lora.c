/* Tests training of adapters as users do it: a run's files, resuming, ranks, check, export, and refusals. */
#include "harness.h"

#include "data/safetensors.h"

#include <fcntl.h>
#include <jansson.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#define RUN " --data corpus.txt --tokenizer bytes --seq-len 256 --lr 1e-2" TILES

/* Copies a model of tests/golden to `to`. */
static void put_base(const char *name, const char *to)
{
    char from[512];
    if (!getenv("LTRAIN_SOURCE_ROOT"))
        skip();
    snprintf(from, sizeof from, "%s/tests/golden/%s", getenv("LTRAIN_SOURCE_ROOT"), name);
    e2e_copy(from, to);
}

static void same_adapter(const char *a, const char *b)
{
    char x[256], y[256];
    snprintf(x, sizeof x, "%s/hf/adapter_model.safetensors", a);
    snprintf(y, sizeof y, "%s/hf/adapter_model.safetensors", b);
    e2e_same_file(x, y);
}

/* A run writes only adapters, in fp32 and under PEFT's names; the base is unchanged. The bits are the same on every device. */
static void left_behind(void **state)
{
    struct st_file *f;
    struct st_info info;
    (void)state;
    put_base("lora-gqa", "base");
    put_base("lora-gqa", "kept");
    struct result r = e2e_succeeds(NULL, "--model base --lora r=4 --steps 4 --save-every 2 --out run" RUN);
    e2e_contains(r.out, "lora: r 4, alpha 8: 14 linear maps (all-linear)");
    e2e_same_file("base/model.safetensors", "kept/model.safetensors");
    assert_true(e2e_exists("run/hf/adapter_config.json") && !e2e_exists("run/hf/config.json") &&
                !e2e_exists("run/hf/model.safetensors"));
    assert_int_equal(st_open("run/hf/adapter_model.safetensors", &f), OK);
    assert_int_equal(st_count(f), 28);
    assert_int_equal(st_find(f, "base_model.model.model.layers.1.mlp.down_proj.lora_B.weight", &info), OK);
    assert_true(info.dtype == F32 && info.n_dims == 2 && info.shape[0] == 32 && info.shape[1] == 4);
    st_close(f);
    assert_int_equal(st_open("run/checkpoints/step-000004/model.safetensors", &f), OK);
    assert_int_equal(st_count(f), 28);
    st_close(f);
    e2e_succeeds(NULL, "--model base --lora r=4 --steps 4 --out away" DISCRETE RUN);
    same_adapter("run", "away");
}

/* A run that is killed at any step and resumed on another device ends like an undisturbed run; with another base it is refused. */
static void resumed(void **state)
{
    (void)state;
    put_base("lora-gqa", "base");
    e2e_succeeds(NULL, "--model base --lora r=4,modules-to-save=norm --steps 6 --out whole" RUN);
    for (int i = 1; i <= 3; i++) {
        pid_t pid = e2e_start(NULL, "--model base --lora r=4,modules-to-save=norm --steps 6 --save-every 1 --out run" RUN);
        while (!e2e_exists("run/checkpoints/step-00000%d", i) && !e2e_exists("run/hf") && !e2e_ended(pid)) {
        }
        kill(pid, SIGKILL);
        e2e_wait(pid);
        e2e_succeeds(NULL, "--resume run" DISCRETE);
        same_adapter("whole", "run");
        e2e_remove("run");
    }
    e2e_succeeds(NULL, "--model base --lora r=4 --steps 2 --save-every 2 --out run" RUN);
    e2e_refuses(2, "has no model.layers.0.input_layernorm.weight|--lora", NULL,
                "--resume run --steps 4 --lora r=4,modules-to-save=norm");
    e2e_refuses(2, "--lora r=4,alpha=9,|the checkpoint's adapters are r=4,alpha=8,", NULL,
                "--resume run --steps 4 --lora r=4,alpha=9");
    e2e_refuses(2, "rslora=yes|the checkpoint's adapters are", NULL, "--resume run --steps 4 --lora r=4,rslora=yes");
    e2e_refuses(2, "alpha-pattern=q_proj:3|the checkpoint's adapters are", NULL,
                "--resume run --steps 4 --lora r=4,alpha-pattern=q_proj:3");
    e2e_refuses(2, "--lora none: the checkpoint's adapters are", NULL, "--resume run --steps 4 --lora none");
    e2e_refuses(2, "--adapter|whole/hf is not the adapter that the run began with|leave it out", NULL,
                "--resume run --steps 4 --adapter whole/hf");
    e2e_refuses(2, "--adapter|absent is not the adapter that the run began with", NULL,
                "--resume run --steps 4 --adapter absent");
    e2e_succeeds(NULL, "--model base --steps 2 --save-every 2 --out full" RUN);
    e2e_refuses(2, "--lora|trains the model whole|--model full --lora", NULL, "--resume full --steps 4 --lora r=4");
    size_t bytes;
    char *weights = e2e_read("base/model.safetensors", &bytes);
    weights[bytes - 3] ^= 1;
    FILE *f = fopen("base/model.safetensors", "w");
    assert_true(fwrite(weights, 1, bytes, f) == bytes && fclose(f) == 0);
    free(weights);
    e2e_refuses(2, "adapters of other weights than|base|--model", NULL, "--resume run --steps 4");
    e2e_refuses(2, "--adapter|run/hf|was trained beside the weights in", NULL, "--model run --steps 4 --out more" RUN);
}

/* A job that is restarted passes its original options again, although the files that they name may be gone. */
static void resumed_with_the_same_options(void **state)
{
    (void)state;
    static const char *const named[] = {"--model base --adapter run/hf", "--model base --adapter run", "--model run/hf",
                                        "--model run"};
    put_base("lora-gqa", "base");
    e2e_succeeds(NULL, "--model base --lora r=4 --steps 2 --out run" RUN);
    e2e_succeeds(NULL, "--model base --lora r=4 --steps 2 --out other" RUN);
    for (size_t i = 0; i < sizeof named / sizeof *named; i++) {
        e2e_succeeds(NULL, "%s --steps 1 --save-every 1 --out again" RUN, named[i]);
        e2e_refuses(2, "--model|other/hf is not the adapter that the run began with", NULL,
                    "--resume again --model other --steps 2");
        e2e_succeeds(NULL, "--resume again %s --steps 2" RUN, named[i]);
        e2e_refuses(2, "again/checkpoints/step-000002 is a checkpoint", NULL,
                    "--resume again/checkpoints/step-000002 --model run --steps 3");
        e2e_remove("again");
    }
    e2e_succeeds(NULL, "--model base --adapter run/hf --steps 1 --save-every 1 --out again" RUN);
    e2e_remove("run");
    e2e_succeeds(NULL, "--resume again --model base --adapter run/hf --steps 2");
    e2e_succeeds(NULL, "--model base --lora r=4 --steps 1 --save-every 1 --out ended" RUN);
    e2e_remove("ended/hf"); /* without hf/ the run's newest checkpoint is its adapter */
    e2e_remove("again");
    e2e_succeeds(NULL, "--model ended --steps 1 --save-every 1 --out again" RUN);
    e2e_succeeds(NULL, "--resume again --model ended --steps 2");
}

#define EVAL " --effort quick --eval-data corpus.txt --lengths 128 --tokenizer bytes --tasks ppl --json"

/* Returns the loss in the JSON of ltrain eval. */
static double loss_of(const char *out)
{
    const char *at = strstr(out, "\"loss\": ");
    assert_non_null(at);
    return strtod(at + strlen("\"loss\": "), NULL);
}

/* A killed run can be used as a model: its newest checkpoint. */
static void unfinished(void **state)
{
    (void)state;
    put_base("lora-gqa", "base");
    for (int k = 0; k < 2; k++) {
        const char *dtype = k ? " --dtype bf16" : "";
        e2e_succeeds(NULL, "--model base --lora r=4,modules-to-save=norm --steps 4 --save-every 2 --out run%s" RUN, dtype);
        e2e_succeeds(NULL, "export --model run --to merged");
        struct result r = e2e_run(NULL, "eval --model run" EVAL);
        assert_int_equal(r.status, 0);
        const double loss = loss_of(r.out);
        e2e_copy("run/hf", "ended");
        e2e_remove("run/hf");
        r = e2e_run(NULL, "eval --model run" EVAL);
        assert_int_equal(r.status, 0);
        assert_true(loss_of(r.out) == loss);
        e2e_contains(r.err, "note: the state of run/checkpoints/step-000004 is taken: the run has not ended");
        r = e2e_run(NULL, "sample --model run --prompt a --max-new-tokens 3 --json");
        assert_int_equal(r.status, 0);
        e2e_contains(r.out, "\"ended\":\"length\"");
        r = e2e_succeeds(NULL, "export --model run --to adapter --adapter");
        e2e_contains(r.out, "adapter: adapter, as it is in run/checkpoints/step-000004; its base is ");
        e2e_same_file("adapter/adapter_model.safetensors", "ended/adapter_model.safetensors");
        e2e_same_file("adapter/adapter_config.json", "ended/adapter_config.json");
        e2e_same_file("adapter/ltrain_base.json", "ended/ltrain_base.json");
        e2e_same_file("adapter/README.md", "ended/README.md");
        e2e_succeeds(NULL, "export --model run --to again");
        e2e_same_file("merged/model.safetensors", "again/model.safetensors");
        e2e_same_file("merged/README.md", "again/README.md");
        e2e_succeeds(NULL, "--model run --steps 1 --out on" RUN);
        e2e_succeeds(NULL, "--model base --adapter ended --steps 1 --out same" RUN);
        same_adapter("on", "same");
        const char *made[] = {"run", "ended", "merged", "again", "adapter", "on", "same"};
        for (int i = 0; i < 7; i++)
            e2e_remove(made[i]);
    }
    e2e_succeeds(NULL, "--model base --lora r=4 --steps 2 --save-every 2 --out run" RUN);
    e2e_copy("run/hf", "ended");
    assert_int_equal(rename("base", "moved"), 0);
    for (int k = 0; k < 2; k++) { /* first with the finished run, then with the killed one */
        e2e_refuses(2, "holds an adapter of|base, which is not there: give the model's directory by --base", NULL,
                    "export --model run --to x --adapter");
        e2e_succeeds(NULL, "export --model run --base moved --to x --adapter");
        e2e_same_file("x/adapter_model.safetensors", "ended/adapter_model.safetensors");
        e2e_succeeds(NULL, "sample --model x --prompt a --max-new-tokens 1");
        e2e_remove("x");
        e2e_remove("run/hf");
    }
    e2e_refuses(2, "base is not there|give the model's directory by --model", NULL, "--resume run --steps 3");
    e2e_succeeds(NULL, "--resume run --steps 3 --model moved");
    assert_int_equal(rename("moved", "base"), 0);
    e2e_succeeds(NULL, "--model base --steps 2 --save-every 2 --out whole" RUN);
    e2e_remove("whole/hf");
    e2e_refuses(2, "holds no adapter but checkpoints of a whole model|--resume whole|--steps 2 ", NULL,
                "export --model whole --to x");
    e2e_succeeds(NULL, "--resume whole --steps 2");
    assert_true(e2e_exists("whole/hf/model.safetensors"));
}

/* If a finished run was continued and then killed, its hf/ is not its newest state. */
static void newest(void **state)
{
    (void)state;
    put_base("lora-gqa", "base");
    const char *lora[] = {" --lora r=4", ""};
    for (int i = 0; i < 2; i++) {
        e2e_succeeds(NULL, "--model base%s --steps 2 --save-every 2 --out run" RUN, lora[i]);
        e2e_copy("run/hf", "former");
        e2e_succeeds(NULL, "--resume run --steps 4");
        struct result r = e2e_succeeds(NULL, "eval --model run" EVAL);
        const double loss = loss_of(r.out);
        e2e_copy("former", "run/hf");
        r = e2e_run(NULL, "eval --model run" EVAL);
        assert_int_equal(r.status, 0);
        e2e_contains(r.err, "note: the state of run/checkpoints/step-000004 is taken, the newest one: run/hf has step 2");
        assert_true(loss_of(r.out) == loss);
        r = e2e_succeeds(NULL, "--model run --steps 1 --out on" RUN);
        e2e_contains(r.out, "step-000004 is taken");
        e2e_remove("run/hf/ltrain_run.json");
        r = e2e_run(NULL, "eval --model run" EVAL);
        e2e_contains(r.err, "note: run/hf does not say of which step it is; the newest checkpoint is of step 4");
        assert_true(loss_of(r.out) != loss);
        e2e_remove("run");
        e2e_remove("on");
    }
}

/* Settings of rotary positions with which an adapter was trained are stored with it. */
static void stretched(void **state)
{
    (void)state;
    size_t bytes;
    put_base("lora-gqa", "base");
    e2e_succeeds(NULL, "--model base --lora r=4 --steps 2 --save-every 2 --rope linear:2 --rope-base 5e4 --out run" RUN);
    struct result r = e2e_succeeds(NULL, "eval --model run" EVAL);
    const double loss = loss_of(r.out);
    r = e2e_succeeds(NULL, "eval --model base --adapter run/hf --rope linear:2 --rope-base 5e4" EVAL);
    assert_true(loss_of(r.out) == loss);
    r = e2e_run(NULL, "eval --model run --rope none --rope-base 10000" EVAL);
    assert_int_equal(r.status, 0);
    e2e_contains(r.err, "note: --rope none, where the adapter in run/hf was trained with linear:2\n");
    e2e_contains(r.err, "note: --rope-base 10000, where the adapter in run/hf was trained with 50000\n");
    assert_true(loss_of(r.out) != loss);
    e2e_succeeds(NULL, "export --model run --to copy --adapter");
    r = e2e_succeeds(NULL, "eval --model copy" EVAL);
    assert_true(loss_of(r.out) == loss);
    e2e_succeeds(NULL, "export --model copy --to merged");
    char *config = e2e_read("merged/config.json", &bytes);
    e2e_contains(config, "\"rope_theta\": 50000");
    e2e_contains(config, "\"linear\"");
    free(config);
    r = e2e_succeeds(NULL, "eval --model merged" EVAL);
    assert_true(fabs(loss_of(r.out) - loss) < 1e-6);
    e2e_remove("run/hf");
    r = e2e_run(NULL, "eval --model run" EVAL);
    assert_true(r.status == 0 && loss_of(r.out) == loss);
    const char *bad[][2] = {{"{\"rope_base\": -1}", "rope_base is -1"},
                            {"{\"rope\": \"yarn\"}", "--rope yarn"},
                            {"[1]", "copy/ltrain_run.json"},
                            {"{\"rope\": 4}", "rope is no string"},
                            {"{\"rope_base\": \"5e4\"}", "rope_base is no number"}};
    for (int i = 0; i < 5; i++) {
        e2e_write("copy/ltrain_run.json", "%s", bad[i][0]);
        e2e_refuses(2, bad[i][1], NULL, "sample --model copy --prompt a");
    }
    e2e_write(
        "copy/ltrain_run.json",
        "{\"commands\": 3, \"data\": [], \"base\": {\"id\": \"a\\nb: c\"}, \"settings\": {}, \"evaluations\": [4], \"step\": 2}");
    e2e_succeeds(NULL, "export --model copy --to plain");
    char *text = e2e_read("plain/README.md", &bytes);
    assert_true(strstr(text, "library_name: transformers") && !strstr(text, "\nb: c") && !strstr(text, "nan"));
    free(text);
}

/* A preset's random weights are in no directory, so they cannot be the base of an adapter. */
static void of_a_preset(void **state)
{
    (void)state;
    e2e_succeeds(NULL, "--lora r=4 --steps 2 --save-every 2 --out run" TINY);
    const char *words = "an adapter of the preset tiny|random weights lie in no directory|--resume";
    for (int i = 0; i < 2; i++) {
        struct result r = e2e_run(NULL, "sample --model run --prompt a");
        assert_int_equal(r.status, 2);
        e2e_contains(r.err, "an adapter of the preset tiny, whose random weights lie in no directory");
        e2e_remove("run/hf");
    }
    e2e_succeeds(NULL, "--resume run --steps 3");
    e2e_refuses(2, words, NULL, "export --model run --to x");
    e2e_refuses(2, words, NULL, "eval --model run" EVAL);
}

/* README.md of a trained model has the hub's front matter and the facts of the training. */
static void card(void **state)
{
    (void)state;
    size_t bytes;
    assert_int_equal(system("mkdir -p models--ORG--tiny-llama/snapshots"), 0);
    put_base("lora-gqa", "models--ORG--tiny-llama/snapshots/0a1b");
    e2e_write("models--ORG--tiny-llama/snapshots/0a1b/README.md",
              "---\nlicense: other\nlicense_name: \"tiny-1\"\nlicense_link: LICENSE\ntags:\n- theirs\n---\n# Theirs\n");
    e2e_succeeds(NULL, "--model models--ORG--tiny-llama/snapshots/0a1b --lora r=4 --steps 2 --save-every 2 --eval-fraction 0.3 "
                       "--eval-before --eval-every 1 --out run" RUN);
    char *text = e2e_read("run/hf/README.md", &bytes);
    assert_true(strncmp(text,
                        "---\nlibrary_name: peft\nbase_model: \"ORG/tiny-llama\"\nlicense: \"other\"\nlicense_name: \"tiny-1\"\n"
                        "license_link: \"https://huggingface.co/ORG/tiny-llama/blob/main/LICENSE\"\n"
                        "pipeline_tag: text-generation\ntags:\n- ltrain\n- lora\n---\n\n# run\n",
                        210) == 0);
    const char *said[] = {"trained beside `ORG/tiny-llama`",
                          "| files | `corpus.txt` |",
                          "| documents | 1 |",
                          "| supervised tokens | ",
                          "| steps | 2 |",
                          "| tokens trained on | 512, 512 of them supervised |",
                          "| sequence length | 256 tokens |",
                          "| LoRA | `r=4,alpha=8,targets=all-linear` |",
                          "| learning rate | 0.01, constant over 2 steps",
                          "| seed | 1 |",
                          "| types | fp32; moments fp32 |",
                          "| mesh | dp=1",
                          "perplexity",
                          "| 0 | ",
                          "| 2 | ",
                          "AutoPeftModelForCausalLM",
                          "ltrain 0.",
                          "(commit ",
                          "    ltrain --model models--ORG--tiny-llama/snapshots/0a1b --lora r=4 --steps 2"};
    for (size_t i = 0; i < sizeof said / sizeof *said; i++)
        e2e_contains(text, said[i]);
    assert_null(strstr(text, "Theirs"));
    assert_null(strstr(text, "/corpus.txt"));
    free(text);
    struct result r = e2e_succeeds(NULL, "eval --model run --effort quick --lengths 128");
    e2e_contains(r.out, "text: what run has held out of its training: the last 30% of "); /* read with the run's --tokenizer */
    e2e_succeeds(NULL, "--resume run --steps 4 --lr 2e-2");
    e2e_succeeds(NULL, "export --model run --to merged");
    text = e2e_read("merged/README.md", &bytes);
    const char *merged[] = {"library_name: transformers\nbase_model: \"ORG/tiny-llama\"\n",
                            "- lora\n",
                            "| steps | 4 |",
                            "| tokens trained on | 1,024, 1,024 of them supervised |",
                            "    ltrain --resume run --steps 4 --lr 2e-2\n",
                            "AutoModelForCausalLM",
                            "| 4 | "};
    for (size_t i = 0; i < sizeof merged / sizeof *merged; i++)
        e2e_contains(text, merged[i]);
    free(text);
    e2e_succeeds(NULL, "--steps 1 --eval-data corpus.txt --out whole//" TINY);
    text = e2e_read("whole/hf/README.md", &bytes);
    e2e_contains(text, "| documents | 1 |"); /* the other document is held out */
    e2e_contains(
        text,
        "---\nlibrary_name: transformers\npipeline_tag: text-generation\ntags:\n- ltrain\n---\n\n# whole\n\nA model that was trained on "
        "from random parameters of the preset `tiny`.");
    free(text);
}

/* A base whose weights are distributed over other files is still the same base. */
static void resharded(void **state)
{
    struct st_file *f;
    const char *half[2][64];
    int n[2] = {0, 0};
    char map[8192] = "";
    (void)state;
    put_base("lora-gqa", "base");
    e2e_succeeds(NULL, "--model base --lora r=4 --steps 2 --save-every 2 --out run" RUN);
    e2e_copy("base", "cut");
    assert_int_equal(st_open("base", &f), OK);
    for (int i = 0; i < st_count(f); i++) {
        size_t used = strlen(map);
        snprintf(map + used, sizeof map - used, "%s\"%s\": \"model-0000%d-of-00002.safetensors\"", used ? ", " : "",
                 st_name(f, i), i % 2 + 1);
        half[i % 2][n[i % 2]++] = st_name(f, i);
    }
    e2e_remove("cut/model.safetensors");
    assert_int_equal(st_copy(f, half[0], n[0], "cut/model-00001-of-00002.safetensors"), OK);
    assert_int_equal(st_copy(f, half[1], n[1], "cut/model-00002-of-00002.safetensors"), OK);
    st_close(f);
    e2e_write("cut/model.safetensors.index.json", "{\"metadata\": {}, \"weight_map\": {%s}}", map);
    e2e_succeeds(NULL, "export --model run --base cut --to merged");
    e2e_succeeds(NULL, "--resume run --model cut --steps 3");
}

/* A second export into the same directory is refused and leaves the first export's files alone. */
static void two_exports(void)
{
    assert_true(mkdir("busy", 0777) == 0 && mkdir("busy/export.partial", 0777) == 0);
    const int first = open("busy", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    assert_true(first >= 0 && flock(first, LOCK_EX | LOCK_NB) == 0);
    e2e_refuses(2, "--to: another export is writing to busy", NULL, "export --model run --to busy");
    e2e_refuses(2, "--to: another export is writing to busy", NULL, "export --model run --to busy --adapter");
    assert_true(e2e_exists("busy/export.partial"));
    close(first);
    e2e_succeeds(NULL, "export --model run --to busy --adapter"); /* files left by a killed export are removed */
    assert_true(e2e_exists("busy/adapter_model.safetensors") && !e2e_exists("busy/export.partial"));
}

/* If --model names an adapter, which names its base, training continues the adapter; merged into the base, it gives the same
 * model. */
static void on_top(void **state)
{
    (void)state;
    put_base("lora-gqa", "base");
    e2e_succeeds(NULL, "--model base --lora r=4 --steps 3 --out run" RUN);
    e2e_succeeds(NULL, "--model run --lora r=4 --steps 1 --out on" RUN); /* hf/ names the maps of all-linear */
    e2e_refuses(2, "--lora: r=4,|targets=q_proj|leave out --lora", NULL,
                "--model run --lora r=4,targets=q_proj --out narrow" RUN);
    struct result r = e2e_succeeds(NULL, "export --model run --to merged");
    e2e_contains(r.out, "W + s B A of 14 matrices, of 21 tensors; the base is ");
    e2e_contains(r.out, "rounded once");
    e2e_contains(r.out, "adapter: it stays in run/hf; export --adapter writes it alone");
    e2e_succeeds(NULL, "--model merged --steps 1 --out after" RUN);
    e2e_succeeds(NULL, "--model base --steps 1 --out before" RUN);
    struct curve on = e2e_curve("on"), after = e2e_curve("after"), before = e2e_curve("before");
    assert_true(fabs(on.loss[0] - after.loss[0]) < 1e-6 * on.loss[0] && fabs(on.loss[0] - before.loss[0]) > 1e-2);
    e2e_succeeds(NULL, "export --model run/hf --to copy --adapter");
    e2e_same_file("copy/adapter_model.safetensors", "run/hf/adapter_model.safetensors");
    e2e_succeeds(NULL, "--model base --adapter copy --steps 1 --out again" RUN);
    struct curve again = e2e_curve("again");
    e2e_same_curve(&on, &again, 1);
    e2e_refuses(2, "--to|another one", NULL, "export --model run --to base");
    e2e_refuses(2, "--to|merged holds a model or a run already", NULL, "export --model run --to merged");
    e2e_refuses(2, "export: --to has no value", NULL, "export --model run --to");
    e2e_refuses(2, "--to is empty", NULL, "export --model run --to=");
    e2e_refuses(2, "--to: corpus.txt is a file", NULL, "export --model run --to corpus.txt");
    assert_int_equal(symlink("absent", "link"), 0);
    e2e_refuses(2, "--to: link is a symbolic link to what is not there", NULL, "export --model run --to link");
    two_exports();
    r = e2e_succeeds(NULL, "eval --model run --eval-data corpus.txt --lengths 128 --tokenizer bytes --tasks ppl");
    e2e_contains(r.out, "run/hf: 1 document"); /* evaluates with the adapter, not the base alone */
    put_base("lora-tied", "other");
    e2e_refuses(2, "--adapter|was trained beside the weights in", NULL,
                "sample --model other --adapter run/hf --prompt a --max-new-tokens 1");
}

/* check accepts PEFT's own adapter, and a run with rank stabilisation in bf16. */
static void checked(void **state)
{
    (void)state;
    put_base("lora-gqa", "base");
    struct result r = e2e_succeeds(NULL, "check --model base/adapter --zero 3" DISCRETE RUN);
    e2e_contains(r.out, "pass");
    r = e2e_succeeds(NULL, "check --model base --lora r=4,rslora=yes --dtype bf16" DISCRETE RUN);
    e2e_contains(r.out, "pass");
}

#define DROPPED "--model base --lora r=4,dropout=0.25 --grad-accum 2"

/* Dropout changes the results, to the same bits on every device and after a resume. Evaluation uses no dropout. A run that starts
 * from the adapter takes over its dropout. */
static void dropped(void **state)
{
    (void)state;
    put_base("lora-gqa", "base");
    struct result r = e2e_succeeds(NULL, DROPPED " --steps 4 --save-every 2 --out whole" RUN);
    e2e_contains(r.out, "lora: r 4, alpha 8, dropout 0.25: 14 linear maps (all-linear)");
    e2e_succeeds(NULL, DROPPED " --steps 2 --save-every 2 --out run" RUN);
    e2e_succeeds(NULL, "--resume run --steps 4" DISCRETE);
    same_adapter("whole", "run");
    e2e_succeeds(NULL, "--model base --lora r=4 --grad-accum 2 --steps 4 --out without" RUN);
    size_t bytes;
    char *with = e2e_read("whole/hf/adapter_model.safetensors", &bytes),
         *without = e2e_read("without/hf/adapter_model.safetensors", &bytes);
    assert_true(memcmp(with, without, bytes) != 0);
    free(with);
    free(without);
    r = e2e_succeeds(NULL, "--model whole --steps 1 --out on" RUN);
    e2e_contains(r.out, "dropout 0.25");
    r = e2e_succeeds(
        NULL,
        "--model whole --lora r=4,dropout=0.5,targets=q_proj,k_proj,v_proj,o_proj,gate_proj,up_proj,down_proj --steps 1 --out more" RUN);
    e2e_contains(r.out, "dropout 0.5");
    e2e_contains(r.out, "note: dropout=0.5 of --lora, where the adapter in whole/hf was trained with 0.25");
    r = e2e_succeeds(
        NULL,
        "--model whole --lora r=4,targets=q_proj,k_proj,v_proj,o_proj,gate_proj,up_proj,down_proj --steps 1 --out same" RUN);
    same_adapter("on", "same"); /* options that are not given are taken from the adapter */
    r = e2e_succeeds(
        NULL,
        "--model whole --lora r=4,dropout=0,targets=q_proj,k_proj,v_proj,o_proj,gate_proj,up_proj,down_proj --steps 1 --out off" RUN);
    e2e_contains(r.out, "note: dropout=0 of --lora");
    e2e_succeeds(NULL, "export --model whole --to merged");
    r = e2e_run(NULL, "eval --model whole" EVAL);
    const double loss = loss_of(r.out);
    r = e2e_run(NULL, "eval --model merged" EVAL);
    assert_true(fabs(loss_of(r.out) - loss) < 1e-5 * loss);
    r = e2e_succeeds(NULL, "check " DROPPED " --zero 3" DISCRETE RUN);
    e2e_contains(r.out, "pass");
}

/* With a single sequence and learning rate 0, every step still has its own dropout mask, determined by the number of the sequence
 * in the run, on any rank. */
static void masks(void **state)
{
    (void)state;
    put_base("lora-gqa", "base");
    e2e_succeeds(NULL, "--model base --lora r=4,dropout=0.25 --steps 4 --out run" RUN);
    e2e_write("one.txt", "%0255d", 7);
    e2e_succeeds(NULL, "--model run --steps 3 --out still --data one.txt --tokenizer bytes --seq-len 256 --lr 0" TILES);
    struct curve still = e2e_curve("still");
    assert_true(still.loss[0] != still.loss[1] && still.loss[1] != still.loss[2] && still.loss[0] != still.loss[2]);
    e2e_succeeds(NULL, "--model run --grad-accum 2 --steps 2 --out alone" RUN);
    struct result r = e2e_run(&(struct launch){.prepare = e2e_let_root_start_ranks},
                              "--model run --ranks 2 --mesh dp=2 --steps 2 --out two" RUN);
    if (r.status != 0)
        skip(); /* no mpiexec here */
    struct curve alone = e2e_curve("alone"), two = e2e_curve("two");
    for (int i = 0; i < 2; i++)
        assert_true(fabs(alone.loss[i] - two.loss[i]) < 1e-6);
}

/* Replaces a text in base/adapter's adapter_config.json. */
static void edit(const char *text, const char *by)
{
    char *config = e2e_read("base/adapter/adapter_config.json", &(size_t){0}), *at = strstr(config, text);
    assert_non_null(at);
    e2e_write("base/adapter/adapter_config.json", "%.*s%s%s", (int)(at - config), config, by, at + strlen(text));
    free(config);
}

static void edited(const char *text, const char *by, const char *words)
{
    edit(text, by);
    e2e_refuses(2, words, NULL, "--model base/adapter" RUN);
    edit(by, text);
}

/* Patterns that match nothing give only a warning: PEFT leaves patterns of other models in its files. */
static void idle_pattern(void **state)
{
    (void)state;
    put_base("lora-gqa", "base");
    edit("\"rank_pattern\": {}", "\"rank_pattern\": {\"query\": 2}");
    struct result r = e2e_succeeds(NULL, "--model base/adapter --steps 1 --out run" RUN);
    e2e_contains(r.out, "warning: the adapter's rank-pattern=query:2");
}

/* Adapters of some layers, named in three ways, are read, merged and trained further; so are adapters initialised by MiCA. */
static void some_layers(void **state)
{
    (void)state;
    static const char *const places[] = {"targets=layers.1.mlp.up_proj,model.layers.0.self_attn.q_proj",
                                         "targets=q_proj,layers-to-transform=1",
                                         "targets=q_proj,up_proj,exclude-modules=1.self_attn.q_proj"};
    put_base("lora-gqa", "base");
    for (int i = 0; i < 3; i++) {
        e2e_succeeds(NULL, "--model base --lora r=4,%s --steps 1 --out run" RUN, places[i]);
        e2e_succeeds(NULL, "export --model run --to merged");
        e2e_succeeds(NULL, "export --model run --to hf --adapter");
        same_adapter("run", ".");
        struct result r = e2e_succeeds(NULL, "--model run/hf --steps 1 --out next" RUN);
        e2e_contains(r.out, "lora: r 4, alpha 8");
        e2e_remove("run");
        e2e_remove("merged");
        e2e_remove("hf");
        e2e_remove("next");
    }
    edit("\"init_lora_weights\": true", "\"init_lora_weights\": \"mica\"");
    struct result r = e2e_succeeds(NULL, "--model base/adapter --steps 1 --out run" RUN);
    e2e_contains(r.out, "begun by MiCA, of which PEFT trains A alone");
    e2e_refuses(2, "layers-to-transform=2: the model has 2 layers", NULL,
                "--model base --lora targets=q_proj,layers-to-transform=1,2" RUN);
    e2e_refuses(2, "exclude-modules=query: no module is called so", NULL, "--model base --lora exclude-modules=query" RUN);
    e2e_refuses(2, "that layers-to-transform and exclude-modules leave", NULL,
                "--model base --lora targets=.*q_proj,exclude-modules=q_proj" RUN);
}

/* A base in NF4, quantised while it is loaded or beforehand by bitsandbytes: resumed, merged, evaluated, sampled. */
static void in_nf4(void **state)
{
    (void)state;
    put_base("qlora-gqa", "base");
    e2e_succeeds(NULL, "--model base --lora r=4 --base nf4 --steps 4 --save-every 2 --out run" RUN);
    e2e_succeeds(NULL, "--model base --lora r=4 --base nf4 --steps 4 --out away" DISCRETE RUN);
    e2e_succeeds(NULL, "--model base/double --lora r=4 --steps 4 --out theirs" RUN);
    e2e_succeeds(NULL, "--model base/plain --lora r=4 --steps 4 --out plain" RUN);
    e2e_succeeds(NULL, "--model base --lora r=4 --steps 4 --out stored" RUN);
    same_adapter("run", "away");
    same_adapter("run", "theirs"); /* same bits from both quantisers */
    struct curve run = e2e_curve("run"), plain = e2e_curve("plain"), stored = e2e_curve("stored");
    assert_true(fabs(run.loss[0] - plain.loss[0]) < 1e-2 && run.loss[0] != plain.loss[0] && run.loss[0] != stored.loss[0]);
    e2e_remove("run/checkpoints/step-000004");
    e2e_remove("run/hf");
    e2e_succeeds(NULL, "--resume run" DISCRETE);
    same_adapter("run", "away");
    struct result r = e2e_succeeds(NULL, "--resume run --steps 5 --base none");
    e2e_contains(r.out, "base none (was nf4)");
    r = e2e_succeeds(NULL, "check --model base --lora r=4 --base nf4" DISCRETE RUN);
    e2e_contains(r.out, "pass");
    size_t bytes;
    char *card = e2e_read("away/hf/README.md", &bytes);
    e2e_contains(card, "import BitsAndBytesConfig\n");
    e2e_contains(
        card,
        "bnb_4bit_use_double_quant=True)\nmodel = AutoPeftModelForCausalLM.from_pretrained(where, quantization_config=nf4)\n");
    free(card);
    card = e2e_read("theirs/hf/README.md", &bytes); /* the base's own files say that they are quantised */
    assert_null(strstr(card, "BitsAndBytesConfig"));
    free(card);
    r = e2e_succeeds(NULL, "--model away --base int8 --steps 1 --out elsewhere" RUN);
    e2e_contains(r.out, "note: --base int8, where the adapter in away/hf was trained beside its base in nf4\n");
    /* the adapter records the format of its base; merged into a base in this format it gives the same model */
    e2e_succeeds(NULL, "--model away --steps 1 --out on" RUN);
    r = e2e_succeeds(NULL, "export --model away --to merged");
    e2e_contains(r.out, "W is what NF4 has kept of 14 matrices");
    e2e_succeeds(NULL, "--model merged --steps 1 --out after" RUN);
    r = e2e_succeeds(NULL, "export --model away --to original --original");
    e2e_contains(r.out, "W is the original");
    e2e_succeeds(NULL, "--model original --steps 1 --out other" RUN);
    r = e2e_succeeds(NULL, "export --model theirs --to theirs-merged");
    e2e_contains(r.out, "W is what NF4 has kept of 14 matrices");
    e2e_same_file("merged/model.safetensors", "theirs-merged/model.safetensors");
    /* the merged model's config.json does not mention NF4 */
    e2e_succeeds(NULL, "--model theirs-merged --steps 1 --out last" RUN);
    struct curve on = e2e_curve("on"), after = e2e_curve("after"), other = e2e_curve("other");
    assert_true(fabs(on.loss[0] - after.loss[0]) < 1e-6 * on.loss[0] && fabs(on.loss[0] - other.loss[0]) > 1e-6 * on.loss[0]);
    e2e_succeeds(NULL, "eval --model theirs --eval-data corpus.txt --lengths 128 --tokenizer bytes --tasks ppl");
    e2e_succeeds(NULL, "eval --model base/double --eval-data corpus.txt --lengths 128 --tokenizer bytes --tasks ppl");
    e2e_succeeds(NULL, "sample --model away --prompt a --max-new-tokens 3 --temperature 0 --tokenizer bytes");
    e2e_succeeds(NULL, "sample --model base/double --prompt a --max-new-tokens 3 --temperature 0 --tokenizer bytes");
    const char *kept[] = {"{\"kept_as\": \"nf5\"}", "{\"kept_as\": 4}", "nf4"};
    for (int i = 0; i < 3; i++) {
        e2e_write("away/hf/ltrain_base.json", "%s", kept[i]);
        e2e_refuses(2, i < 2 ? "ltrain_base.json|kept_as" : "ltrain_base.json|JSON", NULL, "sample --model away --prompt a");
    }
}

/* A base in int8 passes the same tests as a base in NF4. */
static void in_int8(void **state)
{
    size_t bytes;
    (void)state;
    put_base("qlora-gqa", "base");
    put_base("int8-gqa", "theirs");
    e2e_succeeds(NULL, "--model base --lora r=4 --base int8 --steps 4 --save-every 2 --out run" RUN);
    e2e_succeeds(NULL, "--model theirs --lora r=4 --steps 4 --out away" DISCRETE RUN);
    same_adapter("run", "away"); /* same bits from both quantisers */
    e2e_remove("run/checkpoints/step-000004");
    e2e_remove("run/hf");
    e2e_succeeds(NULL, "--resume run" DISCRETE);
    same_adapter("run", "away");
    struct result r = e2e_succeeds(NULL, "check --model theirs --lora r=4" DISCRETE RUN);
    e2e_contains(r.out, "pass");
    char *card = e2e_read("run/hf/README.md", &bytes);
    e2e_contains(
        card,
        "int8 = BitsAndBytesConfig(load_in_8bit=True)\nmodel = AutoPeftModelForCausalLM.from_pretrained(where, quantization_config=int8)\n");
    free(card);
    r = e2e_succeeds(NULL, "export --model run --to merged");
    e2e_contains(r.out, "W is what int8 has kept of 14 matrices");
    e2e_succeeds(NULL, "export --model away --to other");
    e2e_same_file("merged/model.safetensors", "other/model.safetensors");
    e2e_succeeds(NULL, "--model run --steps 1 --out on" RUN);
    e2e_succeeds(NULL, "--model other --steps 1 --out after" RUN);
    struct curve on = e2e_curve("on"), after = e2e_curve("after");
    assert_true(fabs(on.loss[0] - after.loss[0]) < 1e-6 * on.loss[0]);
    e2e_succeeds(NULL, "sample --model theirs --prompt a --max-new-tokens 3 --temperature 0 --tokenizer bytes");
    e2e_refuses(2, "--base nf4|theirs hold int8", NULL, "--model theirs --lora r=4 --base nf4" RUN);
    e2e_refuses(2, "theirs is quantised (int8)|--lora", NULL, "--model theirs" RUN);
}

static void replace(const char *path, const char *was, const char *is)
{
    size_t bytes;
    char *text = e2e_read(path, &bytes), *at = strstr(text, was);
    assert_non_null(at);
    FILE *f = fopen(path, "w");
    fprintf(f, "%.*s%s%s", (int)(at - text), text, is, at + strlen(was));
    assert_int_equal(fclose(f), 0);
    free(text);
}

/* Overwrites the first occurrence of `was` in a file of weights with `is`, which has the same length. */
static void overwrite(const char *path, const char *was, const char *is)
{
    size_t bytes;
    char *data = e2e_read(path, &bytes), *at = memmem(data, bytes, was, strlen(was));
    assert_non_null(at);
    memcpy(at, is, strlen(is));
    FILE *f = fopen(path, "w");
    assert_true(fwrite(data, 1, bytes, f) == bytes && fclose(f) == 0);
    free(data);
}

/* Overwrites n bytes of a file so that `after` bytes follow them. */
static void put_bytes(const char *path, const void *is, size_t n, long after)
{
    FILE *f = fopen(path, "r+");
    assert_true(f && fseek(f, -(long)n - after, SEEK_END) == 0 && fwrite(is, 1, n, f) == n && fclose(f) == 0);
}

/* Overwrites n bytes of a tensor, starting at its byte `at`. */
static void put_tensor(const char *path, const char *name, long at, const void *is, size_t n)
{
    struct st_file *f;
    struct st_raw t;
    assert_int_equal(st_open(path, &f), OK);
    assert_int_equal(st_find_raw(f, name, &t), OK);
    FILE *out = fopen(path, "r+");
    assert_true(out && fseek(out, (long)t.at + at, SEEK_SET) == 0 && fwrite(is, 1, n, out) == n && fclose(out) == 0);
    st_close(f);
}

/* Damage to a quantised base's file of weights: at the first occurrence of `was`, or at a byte of a tensor. */
struct damage {
    const char *golden, *dir; /* dir: subdirectory of the file */
    const char *was;          /* text to be replaced, as long as `is`; NULL: a tensor is damaged */
    const char *tensor;
    long at;
    const void *is;
    size_t n;
    const char *said;
};

#define TEXT(dir, was, is, said)                                \
    {                                                           \
        "qlora-gqa", dir, was, NULL, 0, is, sizeof is - 1, said \
    }
#define BYTES(tensor, at, is, n, said)                \
    {                                                 \
        "int8-gqa", "", NULL, tensor, at, is, n, said \
    }

static void refuse_damaged(const struct damage *d)
{
    char dir[128], path[256];
    snprintf(dir, sizeof dir, "damaged%s", d->dir);
    snprintf(path, sizeof path, "%s/model.safetensors", dir);
    put_base(d->golden, "damaged");
    if (d->was)
        overwrite(path, d->was, d->is);
    else
        put_tensor(path, d->tensor, d->at, d->is, d->n);
    e2e_refuses(2, d->said, NULL, "--model %s --lora r=4" RUN, dir);
    e2e_remove("damaged");
}

static void quantised_damaged(void **state)
{
    static const float huge = 3e38f, negative = -1.0f;
    static const struct damage all[] = {
        TEXT("/double", "nested_offset\"", "nested_offse_\"", "the scales of model.layers|the mean nan"),
        TEXT("/double", "\"quant_type\": \"nf4\"", "\"quant_type\": \"fp4\"", "quant_type of|is fp4"),
        TEXT("/double", "{\"quant_type\": \"nf4\"", "[\"quant_type\": \"nf4\"", "is no JSON: ']' expected"),
        TEXT("/double", "\"nested_offset\": ", "\"nested_offset\":-", "the mean -"),
        TEXT("/plain", "\"blocksize\": 64", "\"blocksize\": 32", "is in blocks of 32"),
        BYTES("model.layers.1.self_attn.v_proj.weight_format", 0, "\2", 1, "v_proj.weight_format is 2 (col_turing)"),
        BYTES("model.layers.1.self_attn.q_proj.SCB", 12, &huge, 4, "q_proj|3e+38 (row 3)"),
        BYTES("model.layers.1.self_attn.q_proj.SCB", 12, &negative, 4,
              "q_proj|is -1 (row 3); it is at least 0 and at most 65504"),
        {"int8-gqa", "", "mlp.down_proj.SCB\"", NULL, 0, "mlp.down_proj.SCX\"", 18, "model.layers.0.mlp.down_proj.SC"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        refuse_damaged(&all[i]);
}

/* A list of exceptions that names every layer leaves nothing in NF4: files and losses equal those of the unquantised model. */
static void skipped(void **state)
{
    (void)state;
    put_base("lora-gqa", "base");
    e2e_succeeds(NULL, "--model base --lora r=4 --steps 2 --out plain" RUN);
    char *config = e2e_read("base/config.json", &(size_t){0});
    e2e_write(
        "base/config.json",
        "{\"quantization_config\": {\"quant_method\": \"bitsandbytes\", \"load_in_4bit\": true, \"bnb_4bit_quant_type\": \"nf4\", "
        "\"llm_int8_skip_modules\": [\"lm_head\", \"vision_tower\", \"model.layers\"]}, %s",
        strchr(config, '{') + 1);
    free(config);
    e2e_succeeds(NULL, "--model base --lora r=4 --steps 2 --out listed" RUN);
    struct curve plain = e2e_curve("plain"), listed = e2e_curve("listed");
    assert_true(plain.n == 2 && listed.n == 2 && memcmp(plain.loss, listed.loss, 2 * sizeof *plain.loss) == 0);
}

static void nf4_refused(void **state)
{
    (void)state;
    put_base("qlora-gqa", "base");
    put_base("lora-gpt2", "gpt2");
    e2e_refuses(2, "--base nf4|--lora", NULL, "--model base --base nf4" RUN);
    e2e_refuses(2, "base/double is quantised|--lora", NULL, "--model base/double" RUN);
    e2e_refuses(2, "modules-to-save=norm,up_proj|up_proj.weight is quantised (NF4) in base/double|trained whole", NULL,
                "--model base/double --lora r=4,modules-to-save=norm,up_proj" RUN);
    e2e_refuses(2, "--base none|hold NF4", NULL, "--model base/double --lora r=4 --base none" RUN);
    e2e_refuses(2, "--base|nf5|nf4", NULL, "--model base --lora r=4 --base nf5" RUN);
    e2e_refuses(2, "--base nf4|another order", NULL, "--model gpt2 --lora r=4 --base nf4" RUN " --seq-len 64");
    e2e_refuses(2, "export|--original|--adapter", NULL, "export --model base/adapter --to copy --original --adapter");
    replace("base/double/config.json", "\"nf4\"", "\"fp4\"");
    e2e_refuses(2, "quantization_config|fp4", NULL, "--model base/double --lora r=4" RUN);
    replace("base/double/config.json", "\"load_in_8bit\": false", "\"load_in_8bit\": true");
    replace("base/double/config.json", "\"load_in_4bit\": true", "\"load_in_4bit\": false");
    e2e_refuses(2, "does not use model.layers.0.mlp.down_proj.weight.absmax", NULL, "--model base/double --lora r=4" RUN);
    replace("base/double/config.json", "bitsandbytes", "gptq");
    e2e_refuses(2, "quantization_config|gptq", NULL, "--model base/double --lora r=4" RUN);
    replace("base/plain/config.json", "\"llm_int8_skip_modules\": null",
            "\"llm_int8_skip_modules\": [\"lm_head\", \"down_proj\"]");
    e2e_refuses(2, "down_proj.weight is stored as U8", NULL, "--model base/plain --lora r=4" RUN);
    replace("base/plain/config.json", "[\"lm_head\", \"down_proj\"]", "[\"multi_modal_projector\"]");
    e2e_succeeds(
        NULL, "--model base/plain --lora r=4 --steps 1 --out listed" RUN); /* this model's head shares the embedding's matrix */
    replace("base/plain/config.json", "[\"multi_modal_projector\"]", "[\"lm_head\", \"multi_modal_projector\"]");
    replace("base/plain/config.json", "double_quant\": false", "double_quant\": true");
    e2e_refuses(2, "blocks of 64", NULL, "--model base/plain --lora r=4" RUN);
    replace("base/plain/config.json", "\"hidden_size\": 64", "\"hidden_size\": 128");
    e2e_refuses(2, "shape|config.json", NULL, "--model base/plain --lora r=4" RUN);
}

/* Adapters of head and embedding, which share one matrix until the adapters are merged. */
static void ends(void **state)
{
    const float other = 1.25f;
    size_t bytes;
    (void)state;
    put_base("lora-ends-tied", "base");
    struct result r = e2e_succeeds(NULL, "--model base --lora r=4,targets=embed_tokens,lm_head,q_proj --steps 3 --out run" RUN);
    e2e_contains(r.out, "3 linear maps and the embedding");
    e2e_succeeds(
        NULL,
        "--model base --lora r=4,targets=embed_tokens,lm_head,q_proj --steps 3 --out away --offload nvme --nvme-path . --nvme-max 50M" RUN);
    same_adapter("run", "away");
    e2e_succeeds(NULL, "--model run --steps 1 --out on" RUN);
    r = e2e_succeeds(NULL, "export --model run --to merged");
    e2e_contains(r.out, "W + s B A of 4 matrices, of 25 tensors");
    e2e_contains(r.out, "head and embedding are one matrix of the base, and two now");
    char *config = e2e_read("merged/config.json", &bytes);
    e2e_contains(config, "\"tie_word_embeddings\": false");
    free(config);
    e2e_succeeds(NULL, "--model merged --steps 1 --out after" RUN);
    struct curve on = e2e_curve("on"), after = e2e_curve("after");
    assert_true(fabs(on.loss[0] - after.loss[0]) < 1e-6 * on.loss[0]);
    /* PEFT saved the base's embedding together with its adapter */
    put_base("lora-ends", "theirs");
    e2e_succeeds(NULL, "--model theirs/adapter --steps 1 --out more" RUN);
    put_tensor("theirs/model.safetensors", "model.embed_tokens.weight", 8, &other, sizeof other);
    e2e_refuses(2, "embed_tokens.base_layer.weight is not the base's model.embed_tokens.weight|vocabulary", NULL,
                "--model theirs/adapter --steps 1" RUN);
}

/* Reads row `row` of 32 numbers. */
static void read_row(const char *path, const char *name, int64_t row, float out[32])
{
    struct st_file *f;
    assert_int_equal(st_open(path, &f), OK);
    assert_int_equal(st_read_f32(f, name, 32 * row, 32, out), OK);
    st_close(f);
}

/* A row of a merged matrix is the adapter's (theirs: its number there) or, with -1, the base's. */
static void check_row(const char *matrix, int64_t row, int64_t theirs)
{
    float merged[32], want[32];
    char module[64], name[160];
    snprintf(module, sizeof module, "%.*s", (int)(strlen(matrix) - strlen(".weight")), matrix);
    snprintf(name, sizeof name, "base_model.model.%s.token_adapter.trainable_tokens_delta", module);
    read_row("merged/model.safetensors", matrix, row, merged);
    if (theirs < 0)
        read_row("base/model.safetensors", matrix, row, want);
    else
        read_row("base/adapter/adapter_model.safetensors", name, theirs, want);
    assert_memory_equal(merged, want, sizeof want);
}

/* Returns the held-out loss of a model. */
static double evaluated(const char *model)
{
    struct result r = e2e_succeeds(NULL, "eval --model %s" EVAL, model);
    return loss_of(r.out);
}

/* Adapters of PEFT's with rows of their own are evaluated, sampled and merged; what is merged is what was evaluated. */
static void rows_of_tokens(void **state)
{
    (void)state;
    for (int tied = 0; tied < 2; tied++) {
        put_base(tied ? "lora-tokens-tied" : "lora-tokens", "base");
        struct result r = e2e_succeeds(NULL, "export --model base/adapter --to merged");
        e2e_contains(r.out, tied ? "merged: 42 rows of" : "merged: 73 rows of");
        check_row("model.embed_tokens.weight", 200, 0);
        check_row("model.embed_tokens.weight", 41, 2);
        check_row("model.embed_tokens.weight", 3, 41);
        check_row("model.embed_tokens.weight", 90, -1);
        if (!tied) {
            check_row("lm_head.weight", 7, 0);
            check_row("lm_head.weight", 91, 2);
            check_row("lm_head.weight", 200, -1);
        }
        const double adapted = evaluated("base/adapter"), merged = evaluated("merged"), base = evaluated("base");
        assert_true(fabs(adapted - merged) < 1e-5 * merged); /* s B A apart or added: fp32 rounds otherwise */
        assert_true(fabs(adapted - base) > 1e-4 * base);
        r = e2e_succeeds(NULL, "sample --model base/adapter --prompt ab --temperature 0 --max-new-tokens 8 --tokenizer bytes");
        char *sampled = strdup(r.out); /* the next run's output takes its place */
        r = e2e_succeeds(NULL, "sample --model merged --prompt ab --temperature 0 --max-new-tokens 8 --tokenizer bytes");
        assert_string_equal(r.out, sampled);
        free(sampled);
        e2e_succeeds(NULL, "export --adapter --model base/adapter --to alone");
        e2e_same_file("alone/adapter_model.safetensors", "base/adapter/adapter_model.safetensors");
        e2e_remove("base");
        e2e_remove("merged");
        e2e_remove("alone");
    }
}

/* Rows are trained from the base's on, to the same bits on every device and after a resume, and saved as PEFT does; what a run
 * leaves is evaluated, merged and trained on. */
static void rows_trained(void **state)
{
    static const char *const of[] = {"embed_tokens:101,32,120,lm_head:101,116", "101,32,120,116"};
    static const char *const exchanged[] = {"embed_tokens:101,32,120,lm_head:116,101", "32,101,120,116"};
    static const char *const peft[] = {"\"lm_head\": [\n      101,\n      116\n    ]",
                                       "\"trainable_token_indices\": [\n    101,\n    32"};
    (void)state;
    for (int tied = 0; tied < 2; tied++) {
        char begin[200];
        float first[32], trained[32], base[32];
        size_t bytes;
        snprintf(begin, sizeof begin, "--model base --lora r=4,targets=q_proj,tokens=%s --weight-decay 0 --grad-accum 2%s",
                 of[tied], tied ? " --dtype bf16" : "");
        put_base(tied ? "lora-tokens-tied" : "lora-tokens", "base");
        struct result r = e2e_succeeds(NULL, "%s --steps 4 --save-every 2 --out whole" RUN, begin);
        e2e_contains(r.out, tied ? "tokens also trains 4 rows of the embedding, which is the head's matrix"
                                 : "tokens also trains 3 rows of the embedding and 2 of the head");
        e2e_succeeds(NULL, "%s --steps 2 --save-every 2 --out run" RUN, begin);
        e2e_refuses(2, "tokens=|the checkpoint's adapters are r=4", NULL,
                    "--resume run --steps 4 --lora r=4,targets=q_proj,tokens=%s", exchanged[tied]);
        e2e_succeeds(NULL, "--resume run --steps 4" DISCRETE);
        same_adapter("whole", "run");
        e2e_succeeds(NULL, "%s --steps 4 --out away --offload nvme --nvme-path . --nvme-max 50M" RUN, begin);
        same_adapter("whole", "away");
        char *config = e2e_read("run/hf/adapter_config.json", &bytes);
        e2e_contains(config, peft[tied]);
        free(config);
        read_row("base/model.safetensors", "model.embed_tokens.weight", 101, base);
        read_row("run/hf/adapter_model.safetensors", "base_model.model.model.embed_tokens.token_adapter.trainable_tokens_delta",
                 0, trained);
        double moved = 0;
        for (int i = 0; i < 32; i++)
            moved += fabs((double)trained[i] - base[i]);
        assert_true(moved > 1e-3 && moved < 32 * 4 * 1.1e-2); /* AdamW moves a number by at most about lr = 1e-2 in each step */
        e2e_succeeds(NULL, "export --model run --to merged");
        read_row("merged/model.safetensors", "model.embed_tokens.weight", 101, first);
        assert_memory_equal(first, trained, sizeof first);
        const double adapted = evaluated("run"), merged = evaluated("merged"), saved = evaluated("run/checkpoints/step-000004");
        assert_true(fabs(adapted - merged) < 1e-5 * merged && fabs(adapted - saved) < 1e-9 * saved);
        e2e_succeeds(NULL, "--model run --steps 1 --out on" RUN);
        e2e_succeeds(NULL, "--model merged --steps 1 --out after" RUN);
        struct curve on = e2e_curve("on"), after = e2e_curve("after");
        assert_true(fabs(on.loss[0] - after.loss[0]) < 1e-5 * on.loss[0]);
        e2e_succeeds(NULL, "--model base/adapter --steps 1 --out theirs" RUN);
        static const char *const made[] = {"base", "whole", "run", "away", "merged", "on", "after", "theirs"};
        for (size_t i = 0; i < sizeof made / sizeof *made; i++)
            e2e_remove(made[i]);
    }
}

/* A check of rows beside an nf4 base and in bf16 passes; lists that are not built are refused. */
static void rows_checked(void **state)
{
    (void)state;
    put_base("lora-tokens", "base");
    struct result r = e2e_succeeds(NULL, "check --model base/adapter --zero 3" DISCRETE RUN);
    e2e_contains(r.out, "pass");
    r = e2e_succeeds(NULL, "check --model base --lora r=4,tokens=lm_head:101,7 --dtype bf16 --base nf4" DISCRETE RUN);
    e2e_contains(r.out, "pass");
#define ROWS(words) "--model base --steps 1 --lora r=4,targets=" words RUN
    e2e_refuses(2, "--lora: tokens: token 256 is beyond the 256 rows", NULL, ROWS("q_proj,tokens=256"));
    e2e_refuses(2, "--lora: tokens: token 7 is listed twice", NULL, ROWS("q_proj,tokens=7,5-9"));
    e2e_refuses(2, "tokens: '9-5' is not like", NULL, ROWS("q_proj,tokens=9-5"));
    e2e_refuses(2, "tokens: '-5' is not like", NULL, ROWS("q_proj,tokens=-5"));
    e2e_refuses(2, "tokens: 'lm_head:5' follows tokens without a module's name", NULL, ROWS("q_proj,tokens=3,lm_head:5"));
    e2e_refuses(2, "tokens: 999999999 rows are more than the 65536", NULL, ROWS("q_proj,tokens=1-999999999"));
    e2e_refuses(2, "v_proj is not the embedding", NULL, ROWS("q_proj,tokens=v_proj:3"));
    e2e_refuses(2, "lm_head.weight has an adapter, beside which", NULL, ROWS("lm_head,tokens=lm_head:3"));
    e2e_refuses(2, "model.embed_tokens.weight is trained whole", NULL, ROWS("q_proj,tokens=3,modules-to-save=embed_tokens"));
    put_base("lora-tokens-tied", "base");
    e2e_refuses(2, "one matrix, and rows of the head are others", NULL, ROWS("q_proj,tokens=embed_tokens:3,lm_head:4"));
}

/* Rows that cannot be put in the base's place are refused. */
static void rows_refused(void **state)
{
    (void)state;
    static const char *const all[][2] = {
        {"[256", "token 256 is beyond the 256 rows of model.embed_tokens.weight"},
        {"[1.5", "a list of tokens' numbers"},
        {"[40", "token 40 is listed twice"},
        {"[255, 200", "the adapter is of another model|[42, 32]|[43, 32]"},
        {"{\"lm_head\": [200", "one matrix, and rows of the head are others"},
        {"{\"v_proj\": [200", "v_proj is not the embedding (model.embed_tokens) or the head (lm_head)"},
    };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        size_t bytes;
        put_base("lora-tokens-tied", "base");
        char *text = e2e_read("base/adapter/adapter_config.json", &bytes), *list = strstr(text, "\"trainable_token_indices\": ");
        assert_non_null(list);
        char *first = strstr(list, "200"), *end = strchr(list, ']');
        assert_true(first && end);
        FILE *f = fopen("base/adapter/adapter_config.json", "w");
        assert_non_null(f);
        fprintf(f, "%.*s\"trainable_token_indices\": %s%.*s]%s%s", (int)(list - text), text, all[i][0], (int)(end - first - 3),
                first + 3, all[i][0][0] == '{' ? "}" : "", end + 1);
        assert_int_equal(fclose(f), 0);
        free(text);
        e2e_refuses(2, all[i][1], NULL, "export --model base/adapter --to merged");
        e2e_remove("base");
    }
}

static void int8_refused(void **state)
{
    const float large = 70000.0f, beyond = 3e38f;
    (void)state;
    put_base("int8-gqa", "base");
    put_base("qlora-gqa", "plain");
    replace("base/config.json", "\"hidden_size\": 64", "\"hidden_size\": 128");
    e2e_refuses(2, "shape|config.json", NULL, "--model base --lora r=4" RUN);
    put_bytes("plain/model.safetensors", &large, 4, 256);
    replace("plain/config.json", "{\n", "{\n  \"quantization_config\": {\"load_in_8bit\": true},\n");
    e2e_refuses(2, "is not of type I8|int8, which quantization_config", NULL, "--model plain --lora r=4" RUN);
    replace("plain/config.json", "\"load_in_8bit\": true", "\"load_in_4bit\": true, \"bnb_4bit_quant_type\": \"nf4\"");
    e2e_refuses(2, "has no quant_state.bitsandbytes__nf4|NF4, which quantization_config", NULL, "--model plain --lora r=4" RUN);
    replace("plain/config.json", "\"quantization_config\": {\"load_in_4bit\": true, \"bnb_4bit_quant_type\": \"nf4\"},\n", "");
    e2e_refuses(2, "v_proj.weight has a number beyond 65504 in row 31|--base nf4", NULL,
                "--model plain --lora r=4 --base int8" RUN);
    put_bytes("plain/model.safetensors", &beyond, 4, 256);
    e2e_refuses(2, "v_proj.weight has numbers so large|--base none", NULL, "--model plain --lora r=4 --base nf4" RUN);
}

/* Returns a tensor's type and size as JSON, or, for a tensor that holds text, the JSON in this text; *bytes: the tensor's bytes. */
static json_t *words_of(struct st_file *f, const char *name, char **bytes)
{
    struct st_raw t;
    assert_int_equal(st_find_raw(f, name, &t), OK);
    *bytes = malloc((size_t)t.bytes + 1);
    assert_int_equal(st_read_bytes(f, name, 0, t.bytes, *bytes), OK);
    return strstr(name, ".quant_state.") ? json_loadb(*bytes, (size_t)t.bytes, 0, NULL)
                                         : json_pack("[s, I]", t.type, (json_int_t)t.bytes);
}

/* Makes sure that both files have equal tensors. */
static void same_tensors(const char *a, const char *b)
{
    struct st_file *x, *y;
    assert_int_equal(st_open(a, &x), OK);
    assert_int_equal(st_open(b, &y), OK);
    assert_int_equal(st_count(x), st_count(y));
    for (int i = 0; i < st_count(x); i++) {
        char *p, *q;
        const char *name = st_name(x, i);
        json_t *u = words_of(x, name, &p), *v = words_of(y, name, &q);
        if (!u || !json_equal(u, v) || (json_is_array(u) && memcmp(p, q, (size_t)json_integer_value(json_array_get(u, 1))) != 0))
            fail_msg("%s: %s is not that of %s", a, name, b);
        json_decref(u);
        json_decref(v);
        free(p);
        free(q);
    }
    st_close(x);
    st_close(y);
}

/* Files are written in bitsandbytes' layout. */
static void quantised_files(void **state)
{
    (void)state;
    put_base("qlora-gqa", "base");
    put_base("int8-gqa", "theirs");
    put_base("lora-gpt2", "gpt2");
    struct result r = e2e_succeeds(NULL, "export --model base --to four --quantize nf4");
    e2e_contains(r.out, "quantised: four has 14 matrices in bitsandbytes' NF4, and the other 6 tensors as they are");
    e2e_succeeds(NULL, "export --model base --to eight --quantize int8");
    same_tensors("four", "base/double");
    same_tensors("eight", "theirs");
    e2e_succeeds(NULL, "--model four --lora r=4 --steps 2 --out on-four" RUN);
    e2e_succeeds(NULL, "--model base --base nf4 --lora r=4 --steps 2 --out on-base" RUN);
    same_adapter("on-four", "on-base");
    e2e_succeeds(NULL, "sample --model eight --prompt a --max-new-tokens 3 --temperature 0 --tokenizer bytes");
    e2e_refuses(2, "--quantize int8|four hold NF4 already|from before", NULL, "export --model four --to again --quantize int8");
    e2e_refuses(2, "--quantize nf4|on-four holds an adapter|merge it first", NULL,
                "export --model on-four --to again --quantize nf4");
    e2e_refuses(2, "--quantize nf4|preset", NULL, "export --model tiny --to again --quantize nf4");
    e2e_refuses(2, "--quantize nf4: |another order", NULL, "export --model gpt2 --to again --quantize nf4");
    e2e_refuses(2, "--quantize is 'nf5'", NULL, "export --model base --to again --quantize nf5");
    e2e_refuses(2, "--quantize|--adapter is of an adapter", NULL, "export --model base --to again --quantize nf4 --adapter");
    e2e_refuses(2, "four holds a model", NULL, "export --model base --to four --quantize nf4");
    const float large = 70000.0f;
    put_bytes("base/model.safetensors", &large, 4, 256);
    e2e_refuses(2, "beyond 65504", NULL, "export --model base --to again --quantize int8");
    const uint32_t nan = 0x7fc00000;
    put_bytes("base/model.safetensors", &nan, 4, 0);
    e2e_refuses(2, "model.norm.weight|NaN", NULL, "export --model base --to again --quantize nf4");
    assert_false(e2e_exists("again"));
}

/* Weights are finite, but sums with them overflow: evaluation and export fail, and no number is printed as a result. */
static void overflowing(void **state)
{
    const float large = 3.4e38f;
    (void)state;
    put_base("lora-gqa", "base");
    e2e_succeeds(NULL, "--model base --lora r=4 --steps 1 --out run" RUN);
    put_tensor("run/hf/adapter_model.safetensors", "base_model.model.model.layers.0.mlp.down_proj.lora_A.weight", 0, &large, 4);
    struct result r = e2e_run(NULL, "eval --model run" EVAL);
    assert_int_equal(r.status, 1);
    e2e_contains(r.err, "eval: the loss of windows of 128 tokens is not finite");
    e2e_contains(r.out, "\"loss\": null");
    put_base("qlora-gqa", "half");
    e2e_succeeds(NULL, "--model half --lora r=4,targets=v_proj --steps 1 --out beside" RUN);
    const float b = 1e19f, a[4] = {3.4e19f, 3.4e19f, 3.4e19f, 3.4e19f};
    put_tensor("beside/hf/adapter_model.safetensors", "base_model.model.model.layers.0.self_attn.v_proj.lora_B.weight", 0, &b, 4);
    put_tensor("beside/hf/adapter_model.safetensors", "base_model.model.model.layers.0.self_attn.v_proj.lora_A.weight", 0, a, 16);
    r = e2e_run(NULL, "export --model beside --to merged");
    assert_int_equal(r.status, 1);
    e2e_contains(r.err, "not finite");
    assert_false(e2e_exists("merged"));
}

/* An export overwrites or removes no file of others, and a failed export leaves nothing behind. */
static void exported_beside(void **state)
{
    static const char *const theirs[] = {"tokenizer.json", "merges.txt", "generation_config.json",
                                         "model-00003-of-00007.safetensors", "README.md"};
    static const char *const forms[] = {"--model run --adapter", "--model run", "--model base --quantize int8"};
    char to[64], command[128];
    (void)state;
    put_base("qlora-gqa", "base");
    e2e_succeeds(NULL, "--model base --lora r=4 --steps 1 --out run" RUN);
    assert_int_equal(system("mkdir to && echo mine > to/notes.txt"), 0);
    for (int i = 0; i < 3; i++) {
        for (int k = 0; k < (i == 1 ? 5 : 1); k++) {
            snprintf(to, sizeof to, "to/%s", theirs[k]);
            e2e_write(to, "theirs");
            snprintf(command, sizeof command, "to holds a model or a run already, or a part of one (%s)", theirs[k]);
            e2e_refuses(2, command, NULL, "export --to to %s", forms[i]);
            assert_int_equal(remove(to), 0);
        }
        struct result r = e2e_run(&(struct launch){.fault = "rename:2:ENOSPC"}, "export --to to %s", forms[i]);
        assert_int_equal(r.status, 1);
        assert_int_equal(system("test \"$(ls to)\" = notes.txt"), 0);
        r = e2e_run(&(struct launch){.fault = "rename:1:ENOSPC"}, "export --to new %s", forms[i]);
        assert_true(r.status == 1 && !e2e_exists("new"));
        e2e_succeeds(NULL, "export --to to %s", forms[i]);
        assert_int_equal(system("grep -q mine to/notes.txt && find to -type f ! -name notes.txt -delete"), 0);
    }
}

/* A quantised export of a checkpoint also has those keys of the original config.json that ltrain does not use. */
static void quantised_checkpoint(void **state)
{
    (void)state;
    put_base("qlora-gqa", "base");
    e2e_write("base/generation_config.json", "{\"eos_token_id\": 17}");
    e2e_succeeds(NULL, "--model base --steps 2 --save-every 2 --out run" RUN);
    e2e_remove("run/hf");
    e2e_succeeds(NULL, "export --model run --to eight --quantize int8");
    e2e_same_file("base/generation_config.json", "eight/generation_config.json");
    json_t *was = json_load_file("base/config.json", 0, NULL), *is = json_load_file("eight/config.json", 0, NULL), *value;
    const char *key;
    assert_true(was && is);
    json_object_foreach(was, key, value) if (!json_object_get(is, key)) fail_msg("config.json has no %s", key);
    assert_true(json_is_true(json_object_get(json_object_get(is, "quantization_config"), "load_in_8bit")));
    json_decref(was);
    json_decref(is);
    e2e_succeeds(NULL, "--model eight --lora r=4 --steps 1 --out on" RUN);
}

static void refused(void **state)
{
    (void)state;
    put_base("lora-gqa", "base");
    put_base("lora-tied", "tied");
    put_base("lora-gpt2", "gpt2");
    e2e_refuses(2, "--lora|r=0|a whole number from 1", NULL, "--model base --lora r=0" RUN);
    e2e_refuses(2, "--lora|'rank_q'|rank-pattern", NULL, "--model base --lora r=4,rank_q=3" RUN);
    e2e_refuses(2, "dropout=1|below 1", NULL, "--model base --lora dropout=1" RUN);
    e2e_refuses(2, "targets=c_attn|matches no linear map|q_proj", NULL, "--model base --lora targets=c_attn" RUN);
    e2e_refuses(2, "targets=proj matches no linear map|q_proj", NULL, "--model base --lora targets=proj" RUN);
    e2e_refuses(2, "targets=.*query|matches no linear map", NULL, "--model base --lora targets=.*query" RUN);
    e2e_refuses(2, "targets=(|regular expression", NULL, "--model base --lora targets=(" RUN);
    e2e_refuses(2, "lm_head is a target and among modules-to-save", NULL,
                "--model base --lora targets=q_proj,lm_head,modules-to-save=lm_head" RUN);
    e2e_refuses(2, "targets=wpe|matches no linear map", NULL, "--model gpt2 --lora targets=wpe" RUN " --seq-len 64");
    e2e_refuses(2, "rank-pattern=query:8|no map with an adapter", NULL, "--model base --lora rank-pattern=q_proj:32;query:8" RUN);
    e2e_refuses(2, "rank-pattern=query:8|no map with an adapter", NULL,
                "plan --model base --seq-len 64 --machine l4 --lora r=4,rank-pattern=q_proj:32;query:8");
    e2e_refuses(2, "alpha-pattern=up_proj:3|an earlier part", NULL, "--model base --lora alpha-pattern=up_proj:2;up_proj:3" RUN);
    e2e_refuses(2, "modules-to-save=norms|ends so", NULL, "--model base --lora modules-to-save=norms" RUN);
    e2e_refuses(2, "modules-to-save=lm_head|one matrix|untie", NULL, "--model tied --lora modules-to-save=lm_head" RUN);
    e2e_refuses(2, "modules-to-save=embed_tokens|one matrix|untie", NULL, "--model tied --lora modules-to-save=embed_tokens" RUN);
    e2e_refuses(2, "base/adapter|of another model|shape", NULL, "--model tied --adapter base/adapter" RUN);
    e2e_refuses(2, "tied/adapter|of another model|lora_B", NULL, "--model base --adapter tied/adapter" RUN);
    e2e_refuses(2, "matches no linear map", NULL, "--model gpt2 --adapter tied/adapter" RUN " --seq-len 64");
    edited("\"rank_pattern\": {}", "\"rank_pattern\": {\"q_proj\": 0}", "rank_pattern|a rank is a whole number from 1 to 4096");
    edited("\"rank_pattern\": {}", "\"rank_pattern\": {\"q_proj\": 1e9}", "rank_pattern|a rank is a whole number from 1 to 4096");
    edited("\"alpha_pattern\": {}", "\"alpha_pattern\": {\"q_proj\": -1}",
           "alpha_pattern|alpha is a number above 0 and at most 1e6");
    edited("\"lora_alpha\": 8", "\"lora_alpha\": 1e30", "lora_alpha|alpha is a number above 0 and at most 1e6");
    edited("\"lora_alpha\": 8", "\"lora_alpha\": NaN", "adapter_config.json: line|NaN");
    e2e_refuses(2, "--lora|r=8|leave out --lora", NULL, "--model base/adapter --lora r=8" RUN);
    e2e_refuses(2, "--lora none: base/adapter holds an adapter", NULL, "--model base/adapter --lora none" RUN);
    e2e_refuses(2, "--lora none: base/adapter holds an adapter", NULL, "--model base --adapter base/adapter --lora none" RUN);
    replace("base/adapter/adapter_config.json", "\"model.layers.0.mlp.down_proj\"", "\"lm_head\"");
    e2e_refuses(2, "of another model|has no base_model.model.lm_head.lora_A.weight", NULL, "--model base/adapter" RUN);
    edited("\"ensure_weight_tying\": false", "\"ensure_weight_tying\": true", "ensure_weight_tying|not tied here");
    e2e_refuses(2, "--freeze|--lora", NULL, "--model base --lora r=4 --freeze *lora_A*" RUN);
    e2e_refuses(2, "export|--to DIR is needed", NULL, "export --model base");
    e2e_refuses(2, "holds no adapter", NULL, "export --model base --to merged");
    e2e_refuses(2, "--model: no such directory: absent", NULL, "export --model absent --to merged");
    e2e_remove("base/model.safetensors");
    e2e_remove("base/config.json");
    e2e_refuses(2, "base/adapter|is not there|--adapter", NULL, "--model base/adapter" RUN);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, e2e_setup, e2e_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {TEST(left_behind),
                                       TEST(resumed),
                                       TEST(resumed_with_the_same_options),
                                       TEST(unfinished),
                                       TEST(newest),
                                       TEST(stretched),
                                       TEST(of_a_preset),
                                       TEST(card),
                                       TEST(resharded),
                                       TEST(on_top),
                                       TEST(ends),
                                       TEST(rows_of_tokens),
                                       TEST(rows_trained),
                                       TEST(rows_checked),
                                       TEST(rows_refused),
                                       TEST(checked),
                                       TEST(dropped),
                                       TEST(masks),
                                       TEST(in_nf4),
                                       TEST(quantised_damaged),
                                       TEST(skipped),
                                       TEST(nf4_refused),
                                       TEST(in_int8),
                                       TEST(int8_refused),
                                       TEST(quantised_files),
                                       TEST(overflowing),
                                       TEST(exported_beside),
                                       TEST(quantised_checkpoint),
                                       TEST(idle_pattern),
                                       TEST(some_layers),
                                       TEST(refused)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
