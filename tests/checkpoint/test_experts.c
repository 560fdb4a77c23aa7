/* Models with experts as transformers saves them (golden/make_experts.py): all tensors are read and written again, byte for byte. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "checkpoint/merge.h"
#include "engine/source.h"
#include "engine/stacks.h"
#include "engine/weights.h"
#include "model/config/adapter_config.h"
#include "model/tensors.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const char *const cases[] = {"qwen3_moe",    "qwen3_moe-joined", "mixtral",       "olmoe", "qwen2_moe",  "gpt_oss",
                                    "granitemoe",   "granitemoeshared", "glm4_moe",      "dots1", "solar_open", "exaone_moe",
                                    "ernie4_5_moe", "hunyuan_v1_moe",   "minimax_m2",    "hy_v3", "afmoe",      "gemma4_text",
                                    "flex_olmo",    "mellum",           "granitemoe_swa"};
enum { CASES = sizeof cases / sizeof *cases };

static char work[64];

static void must(enum status st)
{
    if (st != OK)
        fail_msg("%s", status_message());
}

static void path_of(const char *name, char path[512])
{
    snprintf(path, 512, "%s/tests/golden/experts/%s", getenv("LTRAIN_SOURCE_ROOT"), name);
}

/* Opens a case; rank > 0: with adapters beside the maps of queries. */
static struct model *open_model(const char *name, int rank, char path[512])
{
    struct model_config c;
    struct model *m;
    path_of(name, path);
    must(model_config_read(path, &c));
    assert_string_equal(c.unknown, "");
    if (rank > 0)
        must(lora_parse("--lora", "r=2,targets=q_proj", &c.lora));
    must(model_create(&c, NULL, 0, &m));
    return m;
}

/* Each file holds the model's tensors and no others, and the model's numbers are those of the file. */
static void test_tensors(void **state)
{
    (void)state;
    for (int i = 0; i < CASES; i++) {
        char path[512];
        struct st_file *f;
        struct model *m = open_model(cases[i], 0, path);
        int64_t elements = 0;
        must(st_open(path, &f));
        must(weights_check(f, m, NULL, 0));
        for (int k = 0; k < st_count(f); k++) {
            struct st_info info;
            must(st_find(f, st_name(f, k), &info));
            elements += info.elements;
        }
        assert_int_equal(elements, m->total_params);
        assert_true(m->active_params < m->total_params);
        st_close(f);
        model_destroy(m);
    }
}

/* Compares a tensor of two files: type, shape and bytes. */
static void compare_tensor(struct st_file *a, struct st_file *b, const char *name)
{
    struct st_raw x, y;
    must(st_find_raw(a, name, &x));
    must(st_find_raw(b, name, &y));
    assert_string_equal(x.type, y.type);
    assert_int_equal(x.n_dims, y.n_dims);
    assert_memory_equal(x.shape, y.shape, sizeof x.shape);
    char *p = malloc((size_t)x.bytes), *q = malloc((size_t)x.bytes);
    must(st_read_bytes(a, name, 0, x.bytes, p));
    must(st_read_bytes(b, name, 0, x.bytes, q));
    if (memcmp(p, q, (size_t)x.bytes) != 0)
        fail_msg("%s is not the same", name);
    free(p);
    free(q);
}

/* Writes an adapter whose B is zero, so that merging it changes nothing. */
static void write_adapter(const struct model *m, const char *base, const char *dir)
{
    struct st_decl decls[64];
    char names[64][160], path[128];
    struct st_writer *w;
    int n = 0;
    float *data = calloc(4096, sizeof *data);
    for (int i = 0; i < m->n_params; i++) {
        if (!m->params[i].adapter)
            continue;
        snprintf(names[n], sizeof names[n], ADAPTER_PREFIX "%s", m->params[i].name);
        decls[n] = (struct st_decl){
            .name = names[n], .dtype = F32, .n_dims = 2, .shape = {m->params[i].shape[0], m->params[i].shape[1]}};
        n++;
    }
    assert_int_equal(n, 2 * m->config.layers);
    snprintf(path, sizeof path, "%s/" ADAPTER_FILE, dir);
    must(adapter_config_write(dir, m, base));
    must(st_create(path, decls, n));
    must(st_write_open(path, decls, n, &w));
    for (int k = 0; k < n; k++) {
        const int64_t elements = decls[k].shape[0] * decls[k].shape[1];
        for (int64_t e = 0; e < elements; e++)
            data[e] = strstr(names[k], "lora_A") ? 1.0f + (float)e : 0.0f;
        must(st_write_f32(w, k, 0, elements, data));
    }
    must(st_write_finish(w));
    free(data);
}

/* Merging an adapter of zeros writes the base's tensors: names, types, shapes and bytes. */
static void test_merged(void **state)
{
    (void)state;
    for (int i = 0; i < CASES; i++) {
        char path[512], adapter[96], to[96], command[800];
        struct st_file *before, *after;
        struct merge_report report;
        struct model *m = open_model(cases[i], 2, path);
        snprintf(adapter, sizeof adapter, "%s/adapter", work);
        snprintf(to, sizeof to, "%s/merged", work);
        assert_int_equal(mkdir(adapter, 0700), 0);
        write_adapter(m, path, adapter);
        must(checkpoint_merge(m, path, adapter, to, NULL, &report));
        must(st_open(path, &before));
        must(st_open(to, &after));
        assert_int_equal(st_count(before), st_count(after));
        assert_int_equal(report.tensors, st_count(after));
        for (int k = 0; k < st_count(before); k++)
            compare_tensor(before, after, st_name(before, k));
        snprintf(command, sizeof command, "cmp %s/config.json %s/config.json", path, to);
        assert_int_equal(system(command), 0);
        st_close(before);
        st_close(after);
        model_destroy(m);
        snprintf(command, sizeof command, "rm -r %s %s", adapter, to);
        assert_int_equal(system(command), 0);
    }
}

/* Compares a stack in merged files with W + s B A by PEFT's order of columns, up to bf16's rounding. */
static void check_stack(const struct model *m, struct st_file *before, struct st_file *after, struct st_file *adapter,
                        const struct model_linear *w)
{
    enum { MOST = 4096 };
    static float was[MOST], now[MOST], a[MOST], b[MOST];
    const struct model_param *p = &m->params[w->weight], *down = &m->params[w->down], *up = &m->params[w->up];
    char name[160];
    assert_true(p->elements <= MOST && w->rank > 0);
    must(weights_read(before, p, 0, p->elements, F32, was));
    must(weights_read(after, p, 0, p->elements, F32, now));
    snprintf(name, sizeof name, ADAPTER_PREFIX "%s", down->name);
    must(st_read_f32(adapter, name, 0, down->elements, a));
    snprintf(name, sizeof name, ADAPTER_PREFIX "%s", up->name);
    must(st_read_f32(adapter, name, 0, up->elements, b));
    for (int64_t e = 0; e < p->experts; e++)
        for (int64_t o = 0; o < w->out; o++)
            for (int64_t i = 0; i < w->in; i++) {
                const int64_t at = e * w->in * w->out + (w->transposed ? o * w->in + i : i * w->out + o);
                double sum = 0;
                for (int64_t j = 0; j < w->rank; j++)
                    sum += (double)b[o * w->rank * p->experts + j * p->experts + e] * a[(e * w->rank + j) * w->in + i];
                const double want = was[at] + w->adapter_scale * sum;
                assert_true(fabs(now[at] - want) <= fabs(want) / 256 + 1e-6);
            }
}

/* Merging PEFT's adapters of experts gives each expert its own product. */
static void test_merged_stacks(void **state)
{
    static const char *const names[] = {"qwen3-moe", "gpt-oss"};
    (void)state;
    for (int i = 0; i < 2; i++) {
        char path[512], adapter[600], to[96], command[256], base[64];
        struct st_file *before, *after, *from;
        struct merge_report report;
        struct model_config c;
        struct model *m;
        snprintf(path, sizeof path, "%s/tests/golden/lora-moe/%s", getenv("LTRAIN_SOURCE_ROOT"), names[i]);
        snprintf(adapter, sizeof adapter, "%s/adapter", path);
        snprintf(to, sizeof to, "%s/merged", work);
        must(model_config_read(path, &c));
        must(adapter_config_read(adapter, &c.lora, base, sizeof base));
        must(model_create(&c, NULL, 0, &m));
        must(checkpoint_merge(m, path, adapter, to, NULL, &report));
        must(st_open(path, &before));
        must(st_open(to, &after));
        snprintf(adapter, sizeof adapter, "%s/adapter/" ADAPTER_FILE, path);
        must(st_open(adapter, &from));
        const struct experts_block *e = &model_find_block(&m->layers[c.layers - 1], BLOCK_EXPERTS)->experts;
        check_stack(m, before, after, from, &e->gate_up);
        check_stack(m, before, after, from, &e->down);
        st_close(before);
        st_close(after);
        st_close(from);
        model_destroy(m);
        snprintf(command, sizeof command, "rm -r %s", to);
        assert_int_equal(system(command), 0);
    }
}

/* A model whose stacks are whole in files is the model whose experts are tensors of their own. */
static void test_joined(void **state)
{
    (void)state;
    char split_path[512], joined_path[512];
    struct model *split = open_model("qwen3_moe", 0, split_path), *joined = open_model("qwen3_moe-joined", 0, joined_path);
    struct source a, b;
    must(source_open(split, split_path, NULL, 0, &a));
    must(source_open(joined, joined_path, NULL, 0, &b));
    assert_int_equal(split->n_params, joined->n_params);
    int stacks = 0;
    for (int i = 0; i < split->n_params; i++) {
        const struct model_param *p = &split->params[i];
        float *x = malloc((size_t)p->elements * sizeof *x), *y = malloc((size_t)p->elements * sizeof *y);
        must(source_read(&a, i, 0, p->elements, F32, x));
        must(source_read(&b, i, 0, p->elements, F32, y));
        assert_memory_equal(x, y, (size_t)p->elements * sizeof *x);
        must(source_read(&a, i, p->elements / 3, p->elements / 2, F32, x)); /* begins and ends within an expert */
        assert_memory_equal(x, y + p->elements / 3, (size_t)(p->elements / 2) * sizeof *x);
        stacks += p->experts > 0;
        free(x);
        free(y);
    }
    assert_int_equal(stacks, 2);
    source_close(&a);
    source_close(&b);
    model_destroy(split);
    model_destroy(joined);
}

/* A configuration that is written anew is the one that was read. */
static void test_config(void **state)
{
    (void)state;
    for (int i = 0; i < CASES; i++) {
        char path[512], difference[128], command[128];
        struct model_config c, again;
        path_of(cases[i], path);
        must(model_config_read(path, &c));
        must(model_config_write(work, &c, BF16));
        must(model_config_read(work, &again));
        assert_string_equal(again.unknown, "");
        if (model_config_differs(&again, &c, difference, sizeof difference))
            fail_msg("%s: %s", cases[i], difference);
        must(model_config_write_like(work, path, &c, BF16));
        must(model_config_read(work, &again));
        if (model_config_differs(&again, &c, difference, sizeof difference))
            fail_msg("%s: %s", cases[i], difference);
        snprintf(command, sizeof command, "rm %s/config.json", work);
        assert_int_equal(system(command), 0);
    }
}

/* The tensors of a stack are those of its experts, in order, and each belongs to it by name. */
static void test_pieces(void **state)
{
    (void)state;
    const struct model_param p = {.name = "model.layers.3.mlp.experts.gate_up_proj",
                                  .shape = {5 * 6, 4},
                                  .file_shape = {5 * 6, 4},
                                  .elements = 120,
                                  .experts = 5,
                                  .split = 2,
                                  .part = {"gate_proj.weight", "up_proj.weight"}},
                             whole = model_param_joined(&p);
    struct param_tensor t;
    int64_t tensor, there;
    assert_int_equal(model_param_tensors(&p), 10);
    model_param_tensor(&p, 7, &t);
    assert_string_equal(t.name, "model.layers.3.mlp.experts.3.up_proj.weight");
    assert_true(t.n_dims == 2 && t.shape[0] == 3 && t.shape[1] == 4);
    assert_int_equal(model_param_piece(&p, 7 * 12 + 5, 100, &tensor, &there), 7);
    assert_true(tensor == 7 && there == 5);
    assert_int_equal(model_param_piece(&p, 0, 12, &tensor, &there), 12);
    assert_true(tensor == 0 && there == 0);
    assert_int_equal(model_param_tensors(&whole), 1);
    model_param_tensor(&whole, 0, &t);
    assert_string_equal(t.name, p.name);
    assert_true(t.n_dims == 3 && t.shape[0] == 5 && t.shape[1] == 6 && t.shape[2] == 4);
    assert_int_equal(model_param_piece(&whole, 89, 100, &tensor, &there), 100);
    assert_true(tensor == 0 && there == 89);
}

static void test_names(void **state)
{
    (void)state;
    char path[512];
    struct tensor_list *list;
    struct model *m = open_model("mixtral", 0, path);
    must(tensor_list_create(m, &list));
    const int i = tensor_list_find(list, "model.layers.1.block_sparse_moe.experts.3.w3.weight");
    assert_true(i >= 0 && m->params[i].experts == 4);
    assert_string_equal(m->params[i].name, "model.layers.1.block_sparse_moe.experts.gate_up_proj");
    assert_int_equal(tensor_list_find(list, "model.layers.1.block_sparse_moe.experts.4.w3.weight"), -1);
    assert_int_equal(tensor_list_find(list, "model.layers.1.block_sparse_moe.experts.gate_up_proj"), -1);
    tensor_list_destroy(list);
    model_destroy(m);
}

/* The router and the stacks are units of their own behind the head, for each layer that has experts; the router's is fp32. */
static void test_units(void **state)
{
    (void)state;
    char path[512];
    struct model *m = open_model("exaone_moe", 0, path);
    const int head = model_head_unit(m);
    assert_int_equal(m->n_units, m->config.layers + 2 + 2 * 3);
    for (int i = 0; i < m->n_params; i++)
        assert_true(m->params[i].experts < 2 || m->params[i].unit > head);
    assert_null(model_find_block(&m->layers[0], BLOCK_EXPERTS));
    for (int l = 1; l < m->config.layers; l++) {
        const struct experts_block *e = &model_find_block(&m->layers[l], BLOCK_EXPERTS)->experts;
        int own[EXPERT_UNITS];
        assert_int_equal(model_expert_units(m, l, own), EXPERT_UNITS);
        assert_int_equal(own[0], head + 2 * l - 1);
        assert_int_equal(m->params[e->router.weight].unit, own[0]);
        assert_int_equal(m->params[e->router_bias].unit, own[0]);
        assert_int_equal(m->params[e->gate_up.weight].unit, own[1]);
        assert_int_equal(m->params[e->down.weight].unit, own[1]);
        assert_true(m->units[own[0]].fp32 && !m->units[own[1]].fp32);
        assert_int_equal(m->params[e->router_bias].trained, 0);
        assert_true(model_find_block(&m->layers[l], BLOCK_MLP)->parallel);
    }
    model_destroy(m);
}

/* A token is multiplied with the experts that it uses, and with the shared ones. */
static void test_active(void **state)
{
    (void)state;
    char path[512], text[SIZE_TEXT];
    struct model *m = open_model("glm4_moe", 0, path);
    const int64_t expert = 3 * 16 * 12, attention = 16 * (16 + 8 + 8 + 16), dense = 3 * 16 * 24, shared = expert;
    assert_int_equal(m->total_params - m->active_params, 4 * expert); /* 2 of 6 experts are used */
    assert_int_equal(m->matrix_params, 2 * attention + dense + 2 * expert + shared + 6 * 16 + 32 * 16);
    assert_int_equal(m->trained_matrix_params, m->matrix_params);
    assert_non_null(strstr(model_size_text(m, text), " active"));
    model_destroy(m);
}

/* A target that no map, stack of experts or router has is refused with the names that there are; all-linear leaves routers out. */
static void test_adapters(void **state)
{
    (void)state;
    static const char *const targets[] = {"gate_proj", "gate", "all-linear", "all-linear,gate"};
    for (int i = 0; i < 4; i++) {
        char path[512];
        struct model_config c;
        struct model *m;
        snprintf(path, sizeof path, "%s/tests/golden/experts/olmoe", getenv("LTRAIN_SOURCE_ROOT"));
        must(model_config_read(path, &c));
        c.lora = (struct lora){.rank = 2, .alpha = 4};
        snprintf(c.lora.targets, sizeof c.lora.targets, "%s", targets[i]);
        must(model_create(&c, NULL, 0, &m));
        assert_int_equal(model_check_adapters(m), i == 0 ? ERR_INVALID : OK);
        assert_true(i > 0 ||
                    strstr(status_message(), "q_proj, k_proj, v_proj, o_proj, experts.gate_up_proj, experts.down_proj, and "
                                             "the router, mlp.gate"));
        assert_int_equal(m->most_rank, i == 0 ? 0 : 2);
        assert_int_equal(m->adapts_routers, i % 2);
        assert_int_equal(m->most_stack_rank, i < 2 ? 0 : 2);
        m->config.lora.dropout = 0.5;
        assert_int_equal(model_check_adapters(m), ERR_INVALID);
        assert_true(i != 1 || strstr(status_message(), "routers (exclude-modules=mlp.gate)"));
        model_destroy(m);
    }
}

/* B's column j of expert e is column j E + e of PEFT's files: turned as they say, and read back in pieces. */
static void test_beside(void **state)
{
    enum { E = 3, ROWS = 4, RANK = 2, ALL = E * ROWS * RANK };
    (void)state;
    const struct model_param p = {.name = "b",
                                  .shape = {E * ROWS, RANK},
                                  .file_shape = {E * ROWS, RANK},
                                  .elements = ALL,
                                  .experts = E,
                                  .form = STACK_BESIDE};
    float memory[ALL], file[ALL], back[ALL];
    char path[128];
    struct st_file *f;
    struct st_writer *w;
    const struct st_decl decl = {.name = "b", .dtype = F32, .n_dims = 2, .shape = {ROWS, RANK * E}};
    for (int i = 0; i < ALL; i++)
        memory[i] = (float)i;
    stack_turn(&p, memory, file);
    for (int e = 0; e < E; e++)
        for (int i = 0; i < ROWS; i++)
            for (int j = 0; j < RANK; j++)
                assert_true(file[i * RANK * E + j * E + e] == memory[(e * ROWS + i) * RANK + j]);
    snprintf(path, sizeof path, "%s/b.safetensors", work);
    must(st_create(path, &decl, 1));
    must(st_write_open(path, &decl, 1, &w));
    must(st_write_f32(w, 0, 0, ALL, file));
    must(st_write_finish(w));
    must(st_open(path, &f));
    for (int first = 0; first < ALL; first += 5)
        must(weights_read(f, &p, first, first + 5 < ALL ? 5 : ALL - first, F32, back + first));
    assert_memory_equal(back, memory, sizeof memory);
    st_close(f);
    unlink(path);
}

/* An adapter_config.json that was written names just the maps and stacks that have adapters. */
static void test_adapter_config(void **state)
{
    (void)state;
    static const char *const targets[] = {"all-linear",
                                          "q_proj,experts.down_proj",
                                          ".*(v_proj|gate_up_proj)",
                                          "down_proj,rank-pattern=shared_experts.down_proj:3",
                                          "all-linear,gate,rank-pattern=gate:3",
                                          "all-linear,mlp.gate,exclude-modules=0.mlp.gate",
                                          "router"},
                             *const models[] = {"glm4_moe", "glm4_moe", "glm4_moe",  "glm4_moe",
                                                "glm4_moe", "mixtral",  "granitemoe"};
    for (int i = 0; i < 7; i++) {
        struct model_config c;
        struct model *wrote, *read;
        char path[512], text[256], base[64];
        path_of(models[i], path);
        must(model_config_read(path, &c));
        snprintf(text, sizeof text, "r=2,alpha=3,targets=%s", targets[i]);
        must(lora_parse("--lora", text, &c.lora));
        must(model_create(&c, NULL, 0, &wrote));
        must(model_check_adapters(wrote));
        must(adapter_config_write(work, wrote, "base"));
        must(adapter_config_read(work, &c.lora, base, sizeof base));
        must(model_create(&c, NULL, 0, &read));
        assert_true(wrote->adapter_params > 0);
        assert_int_equal(wrote->adapts_routers, i > 3);
        assert_int_equal(wrote->n_params, read->n_params);
        for (int k = 0; k < read->n_params; k++) {
            assert_string_equal(wrote->params[k].name, read->params[k].name);
            assert_memory_equal(wrote->params[k].shape, read->params[k].shape, sizeof read->params[k].shape);
        }
        model_destroy(wrote);
        model_destroy(read);
        snprintf(path, sizeof path, "%s/adapter_config.json", work);
        unlink(path);
    }
}

static int begin(void **state)
{
    (void)state;
    strcpy(work, "/tmp/ltrain-experts-XXXXXX");
    return mkdtemp(work) ? 0 : -1;
}

static int end(void **state)
{
    (void)state;
    return rmdir(work);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_tensors),       cmocka_unit_test(test_merged), cmocka_unit_test(test_joined),
        cmocka_unit_test(test_config),        cmocka_unit_test(test_pieces), cmocka_unit_test(test_names),
        cmocka_unit_test(test_units),         cmocka_unit_test(test_active), cmocka_unit_test(test_adapters),
        cmocka_unit_test(test_merged_stacks), cmocka_unit_test(test_beside), cmocka_unit_test(test_adapter_config)};
    return cmocka_run_group_tests(tests, begin, end);
}
