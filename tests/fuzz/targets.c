#include "fuzz/targets.h"

#include "base/status.h"
#include "chat/chat.h"
#include "checkpoint/lineage.h"
#include "checkpoint/manifest.h"
#include "data/corpus.h"
#include "data/input.h"
#include "data/safetensors.h"
#include "machine/hardware.h"
#include "machine/observed.h"
#include "model/config/adapter_config.h"
#include "model/model.h"
#include "settings/read.h"
#include "text/tokenizer.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static char dir[64];

static const char *in_dir(const char *name)
{
    static char path[4][256];
    static int next;
    next = (next + 1) % 4;
    snprintf(path[next], sizeof path[next], "%s/%s", dir, name);
    return path[next];
}

static void write_file(const char *name, const uint8_t *data, size_t n)
{
    FILE *f = fopen(in_dir(name), "we");
    if (!f || fwrite(data, 1, n, f) != n || fclose(f) != 0)
        abort();
}

static void write_text(const char *name, const char *text)
{
    write_file(name, (const uint8_t *)text, strlen(text));
}

/* Returns st, and aborts if an error has no sentence, or one with bytes that a terminal obeys. */
static enum status check(enum status st)
{
    if (st == OK)
        return OK;
    const size_t n = strlen(status_message());
    if (n == 0 || strpbrk(status_message(), "\r\t\x1b\x7f")) {
        fprintf(stderr, "an error's sentence is '%s'\n", status_message());
        abort();
    }
    return st;
}

/* ---- settings and machines ---- */

static enum status read_settings(const uint8_t *data, size_t n)
{
    struct settings s;
    char *text = malloc(n + 1);
    if (!text)
        return ERR_NOMEM;
    memcpy(text, data, n);
    text[n] = 0;
    const enum status st = check(settings_read_text("config.yaml", text, &s));
    if (st == OK)
        settings_free(&s);
    free(text);
    return st;
}

static enum status read_machine(const uint8_t *data, size_t n)
{
    (void)data;
    (void)n;
    struct hardware h;
    FILE *f = fopen(in_dir("machine.yaml"), "re");
    const enum status st = check(hardware_read("machine.yaml", f, &h));
    fclose(f);
    return st;
}

/* ---- models ---- */

enum { MOST_LAYERS = 64, MOST_EXPERTS = 64 }; /* larger models are read without building their graph */

static enum status read_config(const uint8_t *data, size_t n)
{
    (void)data;
    (void)n;
    struct model_config *c = calloc(1, sizeof *c);
    struct model *m;
    if (!c)
        return ERR_NOMEM;
    enum status st = check(model_config_read(dir, c));
    if (st == OK && c->layers <= MOST_LAYERS && c->experts <= MOST_EXPERTS) {
        st = check(model_create(c, NULL, 0, &m));
        if (st == OK)
            model_destroy(m);
    }
    free(c);
    return st;
}

static enum status read_adapter(const uint8_t *data, size_t n)
{
    (void)data;
    (void)n;
    struct model_config *c = calloc(1, sizeof *c);
    struct model *m;
    char base[256];
    if (!c)
        return ERR_NOMEM;
    enum status st = model_preset("tiny", c);
    if (st == OK)
        st = adapter_config_read(dir, &c->lora, base, sizeof base);
    if (check(st) == OK)
        st = check(model_create(c, NULL, 0, &m));
    if (st == OK) {
        st = check(model_check_adapters(m));
        model_destroy(m);
    }
    free(c);
    return st;
}

static enum status read_tensors(const uint8_t *data, size_t n)
{
    (void)data;
    (void)n;
    struct st_file *f;
    float first[4];
    enum status st = check(st_open(dir, &f));
    if (st != OK)
        return st;
    for (int i = 0; i < st_count(f); i++) {
        struct st_info info;
        struct st_raw raw;
        const enum status found = check(st_find(f, st_name(f, i), &info));
        check(st_find_raw(f, st_name(f, i), &raw));
        if (found == OK && info.elements > 0)
            st = check(st_read_f32(f, st_name(f, i), 0, info.elements < 4 ? info.elements : 4, first));
    }
    st_close(f);
    return st;
}

/* Reads an index beside one good shard with a tensor "a". */
static enum status read_index(const uint8_t *data, size_t n)
{
    static const char header[] = "{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}}";
    uint8_t shard[8 + sizeof header - 1 + 8] = {sizeof header - 1};
    memcpy(shard + 8, header, sizeof header - 1);
    write_file("model-00001-of-00001.safetensors", shard, sizeof shard);
    return read_tensors(data, n);
}

/* ---- checkpoints ---- */

static enum status read_manifest(const uint8_t *data, size_t n)
{
    (void)data;
    (void)n;
    struct comm *comm;
    struct manifest m;
    struct lineage l;
    if (comm_create_self(&comm) != OK)
        abort();
    check(manifest_look(comm, dir, &m)); /* which lacks the files that it names */
    const enum status st = check(manifest_read_lineage(dir, &l));
    comm_destroy(comm);
    return st;
}

/* ---- tokenizers and chats ---- */

static enum status use_tokenizer(const struct tokenizer *t)
{
    static const char text[] = "It was  a dark &\tstormy night;\n\n\xc3\xa9 \xe4\xb8\xad\xe6\x96\x87 <s> 12,345 isn't</s>";
    struct encoder *e;
    struct ids ids = {0};
    struct text_buffer out = {0};
    if (encoder_create(t, &e) != OK)
        return ERR_NOMEM;
    enum status st = check(tokenizer_encode(e, (const uint8_t *)text, sizeof text - 1, 0, &ids));
    if (st == OK)
        st = check(tokenizer_decode(t, ids.id, ids.n, 1, &out));
    text_buffer_free(&out);
    free(ids.id);
    encoder_free(e);
    return st;
}

static enum status read_tokenizer(const uint8_t *data, size_t n)
{
    (void)data;
    (void)n;
    struct tokenizer *t;
    enum status st = check(tokenizer_open(dir, &t));
    if (st != OK)
        return st;
    st = use_tokenizer(t);
    tokenizer_close(t);
    return st;
}

/* Reads tokenizer_config.json beside a small tokenizer: added tokens, special tokens and the chat template. */
static enum status read_tokenizer_config(const uint8_t *data, size_t n)
{
    struct chat_template *t;
    write_text("tokenizer.json", "{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0,\"b\":1,\"ab\":2},\"merges\":[\"a b\"]}}");
    const enum status read = read_tokenizer(data, n), st = check(chat_template_load(dir, &t));
    if (st == OK)
        chat_template_destroy(t);
    return read == OK ? st : read;
}

static const char conversation[] =
    "{\"messages\":[{\"role\":\"system\",\"content\":\"Be brief.\"},{\"role\":\"user\",\"content\":\"Weather?\"},"
    "{\"role\":\"assistant\",\"content\":\"\",\"reasoning_content\":\"r\",\"tool_calls\":[{\"type\":\"function\",\"id\":\"123456789\","
    "\"function\":{\"name\":\"f\",\"arguments\":{\"x\":1}}}]},{\"role\":\"tool\",\"tool_call_id\":\"123456789\",\"content\":\"sun\"},"
    "{\"role\":\"assistant\",\"content\":\"Sun.\"}],\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"f\",\"parameters\":{}}}]}";

/* Limits of a render, far above what real templates take and low enough for many renders a second. */
enum { RENDER_STEPS = 200000, RENDER_BYTES = 64 << 20 };

static enum status render(const struct chat_template *t, const char *json, size_t n)
{
    const struct chat_options options = {.max_steps = RENDER_STEPS, .max_bytes = RENDER_BYTES, .now = 1};
    struct chat_conversation *c;
    struct chat_text text;
    enum status st = check(chat_read(json, n, "rows.jsonl", 1, &c));
    if (st != OK)
        return st;
    st = check(chat_render(t, c, &options, &text));
    if (st == OK)
        chat_text_destroy(&text);
    chat_destroy(c);
    return st;
}

static enum status read_template(const uint8_t *data, size_t n)
{
    struct chat_template *t;
    enum status st = check(chat_template_parse((const char *)data, n, "chat_template.jinja", &t));
    if (st != OK)
        return st;
    st = render(t, conversation, sizeof conversation - 1);
    chat_template_destroy(t);
    return st;
}

static enum status read_row(const uint8_t *data, size_t n)
{
    struct chat_template *t;
    if (chat_template_builtin("chatml", &t) != OK)
        abort();
    const enum status st = render(t, (const char *)data, n);
    chat_template_destroy(t);
    return st;
}

/* ---- data ---- */

static void remove_files(const char *folder)
{
    char path[512];
    DIR *d = opendir(folder);
    for (const struct dirent *e; d && (e = readdir(d));) {
        snprintf(path, sizeof path, "%s/%s", folder, e->d_name);
        if (e->d_name[0] != '.')
            unlink(path);
    }
    if (d)
        closedir(d);
}

/* Opens the file as a corpus, whose bytes are the tokens, and reads its first sequence. */
static enum status read_corpus(const char *name)
{
    enum { LENGTH = 64 };
    const char *paths[] = {in_dir(name)}, *cache = in_dir("cache");
    const struct corpus_config config = {.paths = paths,
                                         .n_paths = 1,
                                         .seq_len = LENGTH,
                                         .vocab = 60000,
                                         .packing = PACKING_BEST_FIT,
                                         .token_bytes = 2,
                                         .threads = 1,
                                         .cache = cache};
    struct corpus *c;
    struct sequence q;
    enum status st = mkdir(cache, 0700) == 0 || errno == EEXIST ? corpus_open(&config, &c) : ERR_IO;
    check(st);
    if (st == OK) {
        static int32_t arrays[5][LENGTH];
        q = (struct sequence){
            .tokens = arrays[0], .targets = arrays[1], .positions = arrays[2], .lo = arrays[3], .hi = arrays[4]};
        st = check(corpus_train_sequence(c, 0, &q));
        corpus_close(c);
    }
    remove_files(cache);
    return st;
}

static enum status read_lines(const uint8_t *data, size_t n)
{
    (void)data;
    (void)n;
    return read_corpus("rows.jsonl");
}

/* Reads an .idx beside a .bin of 64 bytes. */
static enum status read_ids(const uint8_t *data, size_t n)
{
    static const uint8_t ids[64];
    (void)data;
    (void)n;
    write_file("ids.bin", ids, sizeof ids);
    return read_corpus("ids.bin");
}

static enum status read_bin(const uint8_t *data, size_t n)
{
    (void)data;
    (void)n;
    return read_corpus("ids.bin");
}

static enum status read_archive(const char *name)
{
    enum { MOST_BYTES = 16 << 20 }; /* the rest of an archive is left unread */
    struct input *in;
    static uint8_t buffer[1 << 16];
    size_t got = sizeof buffer, all = 0;
    enum status st = check(input_open(in_dir(name), NULL, &in));
    if (st != OK)
        return st;
    while (st == OK && got == sizeof buffer && all < MOST_BYTES) {
        st = input_read(in, buffer, sizeof buffer, &got);
        all += got;
    }
    input_close(in);
    return check(st);
}

/* Reads Parquet's rows as JSON lines. */
static enum status read_parquet(const uint8_t *data, size_t n)
{
    (void)data;
    (void)n;
    return read_archive("rows.parquet");
}

static enum status read_gzip(const uint8_t *data, size_t n)
{
    (void)data;
    (void)n;
    return read_archive("text.txt.gz");
}

static enum status read_zstd(const uint8_t *data, size_t n)
{
    (void)data;
    (void)n;
    return read_archive("text.txt.zst");
}

const struct fuzz_target fuzz_targets[] = {
    {"settings", NULL, read_settings},
    {"machine", "machine.yaml", read_machine},
    {"config", "config.json", read_config},
    {"adapter", "adapter_config.json", read_adapter},
    {"tensors", "model.safetensors", read_tensors},
    {"index", "model.safetensors.index.json", read_index},
    {"manifest", "manifest.json", read_manifest},
    {"tokenizer", "tokenizer.json", read_tokenizer},
    {"sentencepiece", "tokenizer.model", read_tokenizer},
    {"tokenizer_config", "tokenizer_config.json", read_tokenizer_config},
    {"template", NULL, read_template},
    {"row", NULL, read_row},
    {"lines", "rows.jsonl", read_lines},
    {"index_of_ids", "ids.idx", read_ids},
    {"ids", "ids.bin", read_bin},
    {"parquet", "rows.parquet", read_parquet},
    {"gzip", "text.txt.gz", read_gzip},
    {"zstd", "text.txt.zst", read_zstd},
};
const int fuzz_n_targets = sizeof fuzz_targets / sizeof *fuzz_targets;

const struct fuzz_target *fuzz_find(const char *name)
{
    for (int i = 0; i < fuzz_n_targets; i++)
        if (strcmp(fuzz_targets[i].name, name) == 0)
            return &fuzz_targets[i];
    return NULL;
}

enum status fuzz_once(const struct fuzz_target *t, const uint8_t *data, size_t n)
{
    if (t->file)
        write_file(t->file, data, n);
    return t->read(data, n);
}

void fuzz_begin(void)
{
    struct stat s;
    const char *home = getenv("TMPDIR");
    snprintf(dir, sizeof dir, "%.30s/ltrain-fuzz-XXXXXX", stat("/dev/shm", &s) == 0 ? "/dev/shm" : home ? home : "/tmp");
    if (!mkdtemp(dir))
        abort();
}

void fuzz_clear(void)
{
    remove_files(dir);
}

void fuzz_end(void)
{
    fuzz_clear();
    rmdir(in_dir("cache"));
    rmdir(dir);
}
