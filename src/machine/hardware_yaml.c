/* Machines from and to YAML files. */
#include "machine/hardware.h"
#include "machine/islands.h"

#include "base/names.h"
#include "base/units.h"

#include <errno.h>
#include <math.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <yaml.h>

enum field_kind { FIELD_TEXT, FIELD_INT, FIELD_BYTES, FIELD_NUMBER, FIELD_RATE, FIELD_OTHER };

#define SMALLEST 1e6 /* least bytes, or bytes a second, that are believed: a smaller number has lost its unit */
#define LEAST_CAPABILITY 80
#define LARGEST 1e30 /* limit of any number, so that products stay finite */

/* The keys of a file. OTHER: a mapping, read by a function of its own. */
static const struct field {
    const char *name;
    enum field_kind kind;
    size_t offset, size; /* size: bytes of a text */
    double min;          /* NUMBER, RATE: exclusive lower limit; INT: least value */
} fields[] = {
    {"like", FIELD_OTHER, 0, 0, 0},
    {"name", FIELD_TEXT, offsetof(struct hardware, name), sizeof((struct hardware *)0)->name, 0},
    {"source", FIELD_TEXT, offsetof(struct hardware, source), sizeof((struct hardware *)0)->source, 0},
    {"nodes", FIELD_INT, offsetof(struct hardware, nodes), 0, 1},
    {"devices", FIELD_INT, offsetof(struct hardware, devices), 0, 1},
    {"capability", FIELD_INT, offsetof(struct hardware, capability), 0, 0},
    {"processors", FIELD_INT, offsetof(struct hardware, processors), 0, 0},
    {"drives", FIELD_INT, offsetof(struct hardware, drives), 0, 1},
    {"device-mem", FIELD_BYTES, offsetof(struct hardware, device_mem), 0, 0},
    {"host-mem", FIELD_BYTES, offsetof(struct hardware, host_mem), 0, 0},
    {"nvme-mem", FIELD_BYTES, offsetof(struct hardware, nvme_mem), 0, 0},
    {"overhead", FIELD_NUMBER, offsetof(struct hardware, overhead), 0, -1},
    {"h2d", FIELD_RATE, offsetof(struct hardware, h2d), 0, SMALLEST},
    {"d2h", FIELD_RATE, offsetof(struct hardware, d2h), 0, SMALLEST},
    {"late", FIELD_RATE, offsetof(struct hardware, late), 0, SMALLEST},
    {"wake-seconds", FIELD_NUMBER, offsetof(struct hardware, wake_seconds), 0, -1},
    {"throttled-cores", FIELD_NUMBER, offsetof(struct hardware, throttled_cores), 0, -1},
    {"throttled-bytes", FIELD_RATE, offsetof(struct hardware, throttled_bytes), 0, SMALLEST},
    {"host-memory", FIELD_RATE, offsetof(struct hardware, host_memory), 0, SMALLEST},
    {"read", FIELD_RATE, offsetof(struct hardware, read), 0, SMALLEST},
    {"write", FIELD_RATE, offsetof(struct hardware, write), 0, SMALLEST},
    {"both", FIELD_RATE, offsetof(struct hardware, both), 0, SMALLEST},
    {"read-seconds", FIELD_NUMBER, offsetof(struct hardware, read_seconds), 0, -1},
    {"write-seconds", FIELD_NUMBER, offsetof(struct hardware, write_seconds), 0, -1},
    {"inside", FIELD_RATE, offsetof(struct hardware, inside), 0, SMALLEST},
    {"inside-seconds", FIELD_NUMBER, offsetof(struct hardware, inside_seconds), 0, -1},
    {"across", FIELD_RATE, offsetof(struct hardware, across), 0, SMALLEST},
    {"across-seconds", FIELD_NUMBER, offsetof(struct hardware, across_seconds), 0, -1},
    {"peak-flops", FIELD_OTHER, 0, 0, 0},
    {"attention-by-pairs", FIELD_INT, offsetof(struct hardware, device.attention_by), 0, 0},
    {"gemm", FIELD_OTHER, 0, 0, 0},
    {"attention", FIELD_OTHER, 0, 0, 0},
    {"memory", FIELD_OTHER, 0, 0, 0},
    {"host-ops", FIELD_OTHER, 0, 0, 0},
    {"ops", FIELD_OTHER, 0, 0, 0},
    {"cores", FIELD_OTHER, 0, 0, 0},
};
enum { N_FIELDS = sizeof fields / sizeof fields[0] };

static const char *const layouts[GEMM_LAYOUTS] = {"nn", "nt", "tn"};
static const char *const types[COST_TYPES] = {"fp32", "bf16"};

struct reader {
    const char *path;
    yaml_document_t doc;
    struct hardware *h;
    struct islands *islands; /* room for islands; NULL: there may be none */
};

/* A node of the file, and the key that it belongs to. */
struct spot {
    struct reader *r;
    const yaml_node_t *node;
    char key[64];
};

static const char *text_of(const yaml_node_t *n)
{
    return n && n->type == YAML_SCALAR_NODE ? (const char *)n->data.scalar.value : "";
}

static enum status fail(const struct spot *s, const char *what)
{
    return status_fail(ERR_INVALID, "%s:%zu: %s: %s", s->r->path, s->node->start_mark.line + 1, s->key, what);
}

static enum status check_range(const struct spot *s, double x, double above, double most)
{
    char what[128];
    const char *text = text_of(s->node);
    if (x <= above) {
        snprintf(what, sizeof what, "%.40s is too small, it must be above %g", text, above);
        return fail(s, what);
    }
    if (x > most) {
        snprintf(what, sizeof what, "%.40s is too large, it must be at most %g", text, most);
        return fail(s, what);
    }
    return OK;
}

static enum status read_number(const struct spot *s, double above, double *out)
{
    char *end, what[96];
    const char *text = text_of(s->node);
    double x = strtod(text, &end);
    if (end == text || *end || !isfinite(x)) {
        snprintf(what, sizeof what, "'%.40s' is not a number like 3.7e12", text);
        return fail(s, what);
    }
    TRY(check_range(s, x, above, LARGEST));
    *out = x;
    return OK;
}

/* Takes one value of a mapping. */
typedef enum status visitor(const struct spot *s, void *user);

static enum status visit(const struct spot *s, visitor *each, void *user)
{
    if (s->node->type != YAML_MAPPING_NODE)
        return fail(s, "lines like `key: value` are expected");
    const yaml_node_pair_t *p = s->node->data.mapping.pairs.start, *end = s->node->data.mapping.pairs.top;
    for (; p < end; p++) {
        struct spot at = {.r = s->r, .node = yaml_document_get_node(&s->r->doc, p->value)};
        snprintf(at.key, sizeof at.key, "%s", text_of(yaml_document_get_node(&s->r->doc, p->key)));
        for (const yaml_node_pair_t *q = s->node->data.mapping.pairs.start; q < p; q++)
            if (strcmp(text_of(yaml_document_get_node(&s->r->doc, q->key)), at.key) == 0)
                return status_fail(ERR_INVALID, "%s:%zu: %s is given twice", s->r->path, at.node->start_mark.line + 1, at.key);
        TRY(each(&at, user));
    }
    return OK;
}

/* Finds the key among the names. The error lists all names only if none is near: lists are long. */
static enum status choose(const struct spot *s, const char *const *names, int n, int *out)
{
    char all[512] = "";
    for (int i = 0; i < n; i++) {
        if (strcmp(s->key, names[i]) == 0) {
            *out = i;
            return OK;
        }
        strncat(all, i ? ", " : "", sizeof all - strlen(all) - 1);
        strncat(all, names[i], sizeof all - strlen(all) - 1);
    }
    const char *near = names_nearest(s->key, names, n);
    return status_fail(ERR_INVALID, near ? "%s:%zu: '%s' is not known here: did you mean '%s'?" : "%s:%zu: '%s' is not one of %s",
                       s->r->path, s->node->start_mark.line + 1, s->key, near ? near : all);
}

static enum status curve_point(const struct spot *s, void *user)
{
    struct curve *c = user;
    char *end;
    double x = strtod(s->key, &end);
    if (end == s->key || *end || !(x > 0) || !isfinite(x) || (c->n > 0 && x <= c->x[c->n - 1]))
        return fail(s, "a curve's points are positive and ascend, like {1024: 1e9, 65536: 3e9}");
    if (c->n == CURVE_POINTS)
        return fail(s, "a curve has at most 8 points");
    TRY(read_number(s, 0, &c->y[c->n]));
    c->x[c->n++] = x;
    return OK;
}

/* Reads a number, or points. */
static enum status read_curve(const struct spot *s, struct curve *out)
{
    double y;
    if (s->node->type == YAML_SCALAR_NODE) {
        TRY(read_number(s, 0, &y));
        curve_set(out, y);
        return OK;
    }
    *out = (struct curve){0};
    TRY(visit(s, curve_point, out));
    return out->n > 0 ? OK : fail(s, "a curve needs a point");
}

static enum status peak_value(const struct spot *s, void *user)
{
    int type = 0;
    (void)user;
    TRY(choose(s, types, COST_TYPES, &type));
    return read_number(s, 0, &s->r->h->peak_flops[type]);
}

static enum status gemm_layout_value(const struct spot *s, void *user)
{
    struct gemm_rates *r = user;
    int layout = 0, n = 0;
    TRY(choose(s, layouts, GEMM_LAYOUTS, &layout));
    if (s->node->type != YAML_SEQUENCE_NODE)
        return fail(s, "a list of 64 rates is expected, for m, n and k of 64, 256, 1024 and 4096");
    const yaml_node_item_t *i = s->node->data.sequence.items.start, *end = s->node->data.sequence.items.top;
    if (end - i != GEMM_SHAPES)
        return fail(s, "64 rates are expected, for m, n and k of 64, 256, 1024 and 4096");
    for (; i < end; i++) {
        struct spot at = *s;
        at.node = yaml_document_get_node(&s->r->doc, *i);
        TRY(read_number(&at, 0, &r->flops[layout][n++]));
    }
    return OK;
}

static enum status gemm_value(const struct spot *s, void *user)
{
    int type = 0;
    double flops;
    (void)user;
    TRY(choose(s, types, COST_TYPES, &type));
    if (s->node->type != YAML_SCALAR_NODE)
        return visit(s, gemm_layout_value, &s->r->h->device.gemm[type]);
    TRY(read_number(s, 0, &flops));
    hardware_set_gemm(&s->r->h->device.gemm[type], flops, GEMM_SMALLEST);
    return OK;
}

static enum status attention_direction(const struct spot *s, void *user)
{
    static const char *const directions[] = {"forward", "backward"};
    struct attention_rates *a = user;
    int i = 0;
    if (strcmp(s->key, "fast") == 0) /* written by builds with a second backward pass */
        return fail(s, "a backward pass of this name is no more: delete the line, or measure the machine again with --profile");
    TRY(choose(s, directions, 2, &i));
    return read_curve(s, i == 0 ? &a->forward : &a->backward);
}

static enum status attention_head_dim(const struct spot *s, void *user)
{
    struct attention_rates *a = user;
    int i = 0;
    long dim = strtol(s->key, NULL, 10);
    while (i < ATTENTION_DIMS && a[i].head_dim > 0)
        i++;
    if (dim < 1 || dim > 65536 || (i > 0 && dim <= a[i - 1].head_dim) || i == ATTENTION_DIMS)
        return fail(s, "head dimensions are expected, ascending and at most 4");
    a[i].head_dim = (int)dim;
    TRY(visit(s, attention_direction, &a[i]));
    return a[i].forward.n && a[i].backward.n ? OK : fail(s, "forward and backward are expected");
}

static enum status attention_value(const struct spot *s, void *user)
{
    int type = 0;
    (void)user;
    TRY(choose(s, types, COST_TYPES, &type));
    memset(s->r->h->device.attention[type], 0, sizeof s->r->h->device.attention[type]);
    TRY(visit(s, attention_head_dim, s->r->h->device.attention[type]));
    return s->r->h->device.attention[type][0].head_dim ? OK : fail(s, "a head dimension is expected");
}

static enum status op_type(const struct spot *s, void *user)
{
    int type = 0;
    TRY(choose(s, types, COST_TYPES, &type));
    return read_curve(s, (struct curve *)user + type);
}

static enum status op_value(const struct spot *s, void *user)
{
    struct op_rates *r = user;
    const char *names[OP_COUNT + 1];
    int op = 0;
    for (int i = 0; i < OP_COUNT; i++)
        names[i] = op_name((enum op_kind)i);
    names[OP_COUNT] = "memory";
    TRY(choose(s, names, OP_COUNT + 1, &op));
    return op == OP_COUNT ? read_curve(s, &r->memory) : visit(s, op_type, r->op[op]);
}

static enum status cores_value(const struct spot *s, void *user)
{
    const char *names[LANES];
    int lane = 0;
    (void)user;
    for (int l = 0; l < LANES; l++)
        names[l] = lane_name((enum lane)l);
    TRY(choose(s, names, LANES, &lane));
    return read_number(s, -1, &s->r->h->cores[lane]);
}

static enum status read_other(const struct spot *s)
{
    struct hardware *h = s->r->h;
    switch (s->key[0]) {
    case 'p':
        return visit(s, peak_value, NULL);
    case 'g':
        return visit(s, gemm_value, NULL);
    case 'a':
        return visit(s, attention_value, NULL);
    case 'm':
        return read_curve(s, &h->device.ops.memory);
    case 'h':
        return visit(s, op_value, &h->host);
    case 'o':
        return visit(s, op_value, &h->device.ops);
    case 'c':
        return visit(s, cores_value, NULL);
    default:
        return OK; /* the key `like` was read before all other keys */
    }
}

/* Refuses a bare number that is so small that its unit was forgotten. */
static enum status check_unit(const struct spot *s, const char *per, const char *unit)
{
    char what[160];
    const char *text = text_of(s->node);
    double x = strtod(text, NULL);
    if (x <= 0 || x > SMALLEST || text[strspn(text, "0123456789.")] || strlen(text) > 20)
        return OK;
    snprintf(what, sizeof what, "%s is %s bytes%s; did you mean %s%s?", text, text, per, text, unit);
    return fail(s, what);
}

static enum status find_field(const struct spot *s, void *user)
{
    const char *names[N_FIELDS];
    for (int k = 0; k < N_FIELDS; k++)
        names[k] = fields[k].name;
    if (strcmp(s->key, "islands") == 0)
        return fail(s, "an island has none of its own: list all of them at the top");
    if (strcmp(s->key, "gpus") == 0) /* too far from the key's name to be guessed */
        return status_fail(ERR_INVALID, "%s:%zu: 'gpus' is not known here: did you mean 'devices'?", s->r->path,
                           s->node->start_mark.line + 1);
    return choose(s, names, N_FIELDS, user);
}

/* Records that the file gives this field, so that it does not count as assumed. */
static void note_said(struct hardware *h, size_t offset)
{
    static const size_t drives[] = {offsetof(struct hardware, drives), offsetof(struct hardware, nvme_mem),
                                    offsetof(struct hardware, read), offsetof(struct hardware, write),
                                    offsetof(struct hardware, both)};
    if (offset == offsetof(struct hardware, host_mem))
        h->host_assumed = 0;
    for (size_t i = 0; i < sizeof drives / sizeof *drives; i++)
        if (offset == drives[i])
            h->drives_assumed = 0;
}

static enum status read_field(const struct spot *s, void *user)
{
    int i = 0;
    double x;
    int64_t bytes;
    (void)user;
    TRY(find_field(s, &i));
    char *at = (char *)s->r->h + fields[i].offset;
    note_said(s->r->h, fields[i].offset);
    switch (fields[i].kind) {
    case FIELD_TEXT:
        snprintf(at, fields[i].size, "%s", text_of(s->node));
        return OK;
    case FIELD_BYTES: {
        char where[256];
        snprintf(where, sizeof where, "%s:%zu: %s", s->r->path, s->node->start_mark.line + 1, s->key);
        TRY(check_unit(s, "", "G"));
        TRY(units_parse_bytes(where, text_of(s->node), &bytes));
        TRY(check_range(s, (double)bytes, -1, SETTINGS_MOST_BYTES));
        *(int64_t *)(void *)at = bytes;
        return OK;
    }
    case FIELD_INT:
        TRY(read_number(s, fields[i].min - 1, &x));
        if (x != floor(x) || x > HARDWARE_MOST_DEVICES)
            return fail(s, "a whole number is expected, and at most 65536");
        *(int *)(void *)at = (int)x;
        return OK;
    case FIELD_RATE:
        if (!units_parse_rate(text_of(s->node), 1, &x)) {
            TRY(check_unit(s, " a second", "GB/s"));
            TRY(read_number(s, fields[i].min, &x));
        }
        TRY(check_range(s, x, fields[i].min, LARGEST));
        *(double *)(void *)at = x;
        return OK;
    case FIELD_NUMBER:
        return read_number(s, fields[i].min, (double *)(void *)at);
    default:
        return read_other(s);
    }
}

static enum status start_from(const struct spot *s, void *user)
{
    char near[128], what[256];
    const char *name = text_of(s->node);
    if (strcmp(s->key, "like") != 0)
        return OK;
    *(int *)user = 1;
    if (strcmp(name, "cpu") == 0) {
        hardware_assumed(s->r->h);
        return OK;
    }
    if (hardware_is_preset(name))
        return hardware_preset(name, s->r->h);
    hardware_preset_nearest(name, near, sizeof near);
    snprintf(what, sizeof what, "a data sheet's name is expected, like h200 (ltrain plan --help has them all), or cpu%s%s%s",
             near[0] ? "; did you mean " : "", near, near[0] ? "?" : "");
    return fail(s, what);
}

/* Reads a machine, or one of its islands, whose nodes are alike. */
static enum status read_alike(const struct spot *root)
{
    struct reader *r = root->r;
    int started = 0, any;
    TRY(visit(root, find_field, &any));
    TRY(visit(root, start_from, &started));
    if (!started)
        return fail(root, "a line `like: h200` is missing (a data sheet, or cpu): what is left out is as there");
    int like = r->h->devices;
    TRY(visit(root, read_field, NULL));
    if (r->h->host_assumed && !r->h->cpu) /* a data sheet's host has memory for each device */
        r->h->host_mem = r->h->host_mem / like * r->h->devices;
    if (!r->h->cpu && r->h->capability < LEAST_CAPABILITY)
        return status_fail(ERR_INVALID, "%s: capability: %d: kernels need %d or later (10 x compute capability: 90 for 9.0)",
                           r->path, r->h->capability, LEAST_CAPABILITY);
    int64_t devices = (int64_t)r->h->nodes * r->h->devices;
    if (devices > HARDWARE_MOST_DEVICES)
        return status_fail(ERR_INVALID, "%s: %d nodes of %d devices are %lld devices, and at most %d are planned for", r->path,
                           r->h->nodes, r->h->devices, (long long)devices, HARDWARE_MOST_DEVICES);
    return OK;
}

/* Reads an item of the list of islands. */
static enum status read_island(const struct spot *s, struct islands *x)
{
    struct reader r = *s->r;
    struct spot at = *s;
    at.r = &r;
    snprintf(at.key, sizeof at.key, "island %d", x->n + 1);
    if (x->n == MACHINE_MOST_ISLANDS)
        return fail(s, "a machine has at most 8 islands");
    r.h = &x->of[x->n];
    r.islands = NULL; /* an island has none */
    TRY(read_alike(&at));
    x->nodes[x->n] = r.h->nodes;
    if (r.h->cpu != x->of[0].cpu)
        return fail(&at, "processors beside GPUs: all islands have the one or the other");
    x->n++;
    return OK;
}

static enum status read_list(const struct spot *s, struct islands *x)
{
    if (s->node->type != YAML_SEQUENCE_NODE)
        return fail(s, "a list is expected, like [{like: 16xa100-80}, {like: 16xa100-40}]");
    const yaml_node_item_t *i = s->node->data.sequence.items.start, *end = s->node->data.sequence.items.top;
    for (; i < end; i++) {
        struct spot at = *s;
        at.node = yaml_document_get_node(&s->r->doc, *i);
        TRY(read_island(&at, x));
    }
    return x->n > 1 ? OK
                    : fail(s, x->n ? "one alone is no island: give its lines without a list, or 2 to 8 of them"
                                   : "the list is empty: give 2 to 8 islands");
}

static enum status between_value(const struct spot *s, void *user)
{
    static const char *const names[] = {"bytes", "seconds"};
    struct islands *x = user;
    int i = 0;
    TRY(choose(s, names, 2, &i));
    if (i == 1)
        return read_number(s, -1, &x->seconds);
    if (!units_parse_rate(text_of(s->node), 1, &x->bytes)) {
        TRY(check_unit(s, " a second", "GB/s"));
        TRY(read_number(s, SMALLEST, &x->bytes));
    }
    return check_range(s, x->bytes, SMALLEST, LARGEST);
}

static enum status islands_value(const struct spot *s, void *user)
{
    struct islands *x = user;
    if (strcmp(s->key, "islands") == 0)
        return read_list(s, x);
    if (strcmp(s->key, "between") == 0)
        return visit(s, between_value, x);
    return fail(s, "beside islands stands only `between`: give each island its own lines");
}

/* Tells whether a mapping has a key. */
static int has_key(const yaml_document_t *doc, const yaml_node_t *node, const char *key)
{
    const yaml_node_pair_t *p = node->data.mapping.pairs.start;
    for (; node->type == YAML_MAPPING_NODE && p < node->data.mapping.pairs.top; p++)
        if (strcmp(text_of(yaml_document_get_node((yaml_document_t *)doc, p->key)), key) == 0)
            return 1;
    return 0;
}

static enum status read_islands(const struct spot *root)
{
    struct reader *r = root->r;
    struct islands *x = r->islands;
    if (!x)
        return fail(root, "islands stand in files of --machine, at the top: one machine of equal nodes is expected here");
    TRY(visit(root, islands_value, x));
    if (x->bytes <= 0)
        return fail(root, "beside islands a line `between: {bytes: 2.6e9, seconds: 50e-6}` says what links their nodes");
    if (islands_all_devices(x) > HARDWARE_MOST_DEVICES)
        return fail(root, "islands have more than the 65536 devices that are planned for");
    islands_number(x);
    islands_mix(x, r->h);
    return OK;
}

static enum status read_document(struct reader *r)
{
    struct spot root = {.r = r, .node = yaml_document_get_root_node(&r->doc), .key = "machine"};
    if (!root.node)
        return status_fail(ERR_INVALID, "%s: the file is empty", r->path);
    return has_key(&r->doc, root.node, "islands") ? read_islands(&root) : read_alike(&root);
}

enum status hardware_read(const char *path, FILE *f, struct hardware *out)
{
    return machine_read(path, f, out, NULL);
}

enum status machine_read(const char *path, FILE *f, struct hardware *out, struct islands *islands)
{
    struct hardware h;
    struct reader r = {.path = path, .h = &h, .islands = islands};
    yaml_parser_t parser;
    if (!yaml_parser_initialize(&parser))
        return status_fail(ERR_NOMEM, "%s: out of memory", path);
    yaml_parser_set_input_file(&parser, f);
    enum status st;
    if (yaml_parser_load(&parser, &r.doc)) {
        st = read_document(&r);
        yaml_document_delete(&r.doc);
    } else {
        st = status_fail(ERR_INVALID, "%s:%zu: %s", path, parser.problem_mark.line + 1,
                         parser.problem ? parser.problem : "out of memory");
    }
    yaml_parser_delete(&parser);
    if (st == OK)
        *out = h;
    for (int i = 0; st == OK && islands && i < islands->n; i++)
        out->islands = islands->of[i].islands = islands;
    return st;
}

static void write_curve(const struct curve *c, FILE *f)
{
    fputs("{", f);
    for (int i = 0; i < c->n; i++)
        fprintf(f, "%s%.10g: %.6g", i ? ", " : "", c->x[i], c->y[i]);
    fputs("}\n", f);
}

static void write_ops(const char *key, const struct op_rates *r, FILE *f)
{
    fprintf(f, "%s:\n  memory: ", key);
    write_curve(&r->memory, f);
    for (int op = 0; op < OP_COUNT; op++) {
        if (!r->op[op][F32].n && !r->op[op][BF16].n)
            continue;
        fprintf(f, "  %s:\n", op_name((enum op_kind)op));
        for (int t = 0; t < COST_TYPES; t++)
            if (r->op[op][t].n) {
                fprintf(f, "    %s: ", types[t]);
                write_curve(&r->op[op][t], f);
            }
    }
}

static void write_products(const struct rates *r, FILE *f)
{
    fputs("gemm:\n", f);
    for (int t = 0; t < COST_TYPES; t++) {
        fprintf(f, "  %s:\n", types[t]);
        for (int l = 0; l < GEMM_LAYOUTS; l++) {
            fprintf(f, "    %s: [", layouts[l]);
            for (int i = 0; i < GEMM_SHAPES; i++)
                fprintf(f, "%s%.6g", i ? ", " : "", r->gemm[t].flops[l][i]);
            fputs("]\n", f);
        }
    }
    fputs("attention:\n", f);
    for (int t = 0; t < COST_TYPES; t++) {
        fprintf(f, "  %s:\n", types[t]);
        for (int d = 0; d < ATTENTION_DIMS && r->attention[t][d].head_dim > 0; d++) {
            fprintf(f, "    %d:\n      forward: ", r->attention[t][d].head_dim);
            write_curve(&r->attention[t][d].forward, f);
            fputs("      backward: ", f);
            write_curve(&r->attention[t][d].backward, f);
        }
    }
}

enum status hardware_write(const struct hardware *h, FILE *f)
{
    fprintf(f, "like: %s\n", h->cpu ? "cpu" : "h200");
    for (int i = 0; i < N_FIELDS; i++) {
        const char *at = (const char *)h + fields[i].offset;
        if (fields[i].kind == FIELD_TEXT)
            fprintf(f, "%s: \"%s\"\n", fields[i].name, at);
        else if (fields[i].kind == FIELD_INT)
            fprintf(f, "%s: %d\n", fields[i].name, *(const int *)(const void *)at);
        else if (fields[i].kind == FIELD_BYTES)
            fprintf(f, "%s: %lld\n", fields[i].name, (long long)*(const int64_t *)(const void *)at);
        else if (fields[i].kind == FIELD_NUMBER || fields[i].kind == FIELD_RATE)
            fprintf(f, "%s: %.6g\n", fields[i].name, *(const double *)(const void *)at);
    }
    fprintf(f, "peak-flops: {fp32: %.6g, bf16: %.6g}\n", h->peak_flops[F32], h->peak_flops[BF16]);
    write_products(&h->device, f);
    write_ops("ops", &h->device.ops, f);
    write_ops("host-ops", &h->host, f);
    fputs("cores: {", f);
    for (int l = 0; l < LANES; l++)
        fprintf(f, "%s%s: %.4g", l ? ", " : "", lane_name((enum lane)l), h->cores[l]);
    fputs("}\n", f);
    return fflush(f) == 0 && !ferror(f) ? OK : status_fail(ERR_IO, "cannot write the machine's figures: %s", strerror(errno));
}
