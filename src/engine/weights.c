/* Finding a model's parameters in a file by name, checking shapes and values, and listing what else the file holds. */
#include "engine/weights.h"

#include "base/finite.h"
#include "base/mxfp4.h"
#include "base/sys.h"
#include "engine/mxfp4.h"
#include "engine/stacks.h"
#include "engine/thirds.h"
#include "model/tensors.h"

#include <fnmatch.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Refuses a file without the parameter. Names a tensor that the file does have, which shows that the file has another prefix, an
 * adapter or another family. */
static enum status missing(struct st_file *f, const char *name)
{
    const char *first = st_count(f) > 0 ? st_name(f, 0) : "nothing at all";
    int adapter = strncmp(first, "base_model.", strlen("base_model.")) == 0;
    return status_fail(ERR_INVALID, "the model's weights lack the tensor %s; %s has %s%s%s", name, st_path(f, NULL), first,
                       st_count(f) > 1 ? " and others" : "",
                       adapter ? ", as adapters are saved: --adapter DIR puts it on top of its model" : "");
}

const char *weights_shape(int n_dims, const int64_t *shape, char text[WEIGHTS_SHAPE])
{
    int n = snprintf(text, WEIGHTS_SHAPE, "[");
    for (int i = 0; i < n_dims; i++)
        n += snprintf(text + n, WEIGHTS_SHAPE - (size_t)n, "%s%lld", i ? ", " : "", (long long)shape[i]);
    snprintf(text + n, WEIGHTS_SHAPE - (size_t)n, "]");
    return text;
}

struct model_param weights_form(const struct st_file *f, const struct model_param *p)
{
    if (p->form == STACK_BESIDE && stack_is_kept(f, weights_name(f, p->name), p))
        return model_param_kept(p);
    if (p->may_split == 0)
        return *p;
    return weights_name(f, p->name) != p->name ? model_param_joined(p) : model_param_parted(p);
}

enum status weights_find(struct st_file *f, const struct model_param *p, int64_t tensor, const char **name)
{
    struct st_info info;
    struct param_tensor t;
    char there[WEIGHTS_SHAPE], here[WEIGHTS_SHAPE];
    model_param_tensor(p, tensor, &t);
    *name = weights_name(f, t.name);
    enum status st = st_find(f, *name, &info);
    if (st == ERR_INVALID && !st_has(f, *name))
        return missing(f, t.name);
    TRY(st);
    struct thirds cut;
    if ((info.n_dims == t.n_dims && memcmp(info.shape, t.shape, (size_t)t.n_dims * sizeof *t.shape) == 0) ||
        thirds_find(f, p, &cut))
        return OK;
    return status_fail(ERR_INVALID, "%s: tensor %s has the shape %s, config.json means %s", st_path(f, *name), *name,
                       weights_shape(info.n_dims, info.shape, there), weights_shape(t.n_dims, t.shape, here));
}

/* ---- MXFP4 ---- */

/* Returns the file's own name of a tensor; NULL: there is none. */
static const char *mxfp4_name(const struct st_file *f, const struct model_param *p, int tensor, char name[PARAM_NAME])
{
    static const char *const suffix[MXFP4_TENSORS] = {"_blocks", "_scales"};
    snprintf(name, PARAM_NAME, "%s%s", p->name, suffix[tensor]);
    const char *own = weights_name(f, name);
    return own == name ? NULL : own;
}

int weights_has_mxfp4(const struct st_file *f, const struct model_param *p)
{
    char name[PARAM_NAME];
    return p->experts > 0 && p->shape[1] > 0 && mxfp4_name(f, p, MXFP4_CODES, name) != NULL;
}

static enum status check_mxfp4(const struct st_file *f, const struct model_param *p, int tensor, const char *name)
{
    const int64_t want[] = {p->experts, p->shape[1], p->shape[0] / p->experts / MXFP4_BLOCK, MXFP4_BLOCK / 2};
    const int n_dims = tensor == MXFP4_CODES ? 4 : 3;
    char there[WEIGHTS_SHAPE], here[WEIGHTS_SHAPE];
    struct st_raw t;
    TRY(st_find_raw(f, name, &t));
    if (strcmp(t.type, "U8") != 0)
        return status_fail(ERR_INVALID, "%s: tensor %s is of type %s, and MXFP4 is of U8", t.path, name, t.type);
    if (t.n_dims == n_dims && memcmp(t.shape, want, (size_t)n_dims * sizeof *want) == 0)
        return OK;
    return status_fail(ERR_INVALID, "%s: tensor %s has the shape %s, config.json means %s", t.path, name,
                       weights_shape(t.n_dims, t.shape, there), weights_shape(n_dims, want, here));
}

enum status weights_find_mxfp4(const struct st_file *f, const struct model_param *p, const char *name[MXFP4_TENSORS])
{
    for (int i = 0; i < MXFP4_TENSORS; i++) {
        char wanted[PARAM_NAME];
        name[i] = mxfp4_name(f, p, i, wanted);
        if (!name[i])
            return status_fail(ERR_INVALID,
                               "the model's weights lack the tensor %s, which quantization_config of config.json means", wanted);
        TRY(check_mxfp4(f, p, i, name[i]));
    }
    return OK;
}

/* ---- reading ---- */

enum status weights_read_tensors(struct st_file *f, const char *prefix, const struct model_param *p, int64_t first, int64_t n,
                                 enum dtype type, void *data, int64_t *finite)
{
    struct param_tensor t;
    char name[2 * PARAM_NAME];
    int64_t tensor, there, done = 0, good;
    *finite = n;
    snprintf(name, sizeof name, "%s%s", prefix, p->name);
    const struct model_param kept = model_param_kept(p), as = st_has(f, name) ? model_param_joined(&kept) : kept;
    for (int64_t part; done < n; done += part) {
        part = model_param_piece(&as, first + done, n - done, &tensor, &there);
        model_param_tensor(&as, tensor, &t);
        snprintf(name, sizeof name, "%s%s", prefix, t.name);
        TRY(st_read(f, name, there, part, type, (char *)data + done * dtype_size(type), &good));
        if (good < part)
            *finite = min_i64(*finite, done + good);
    }
    return OK;
}

/* Finds the tensor that has an element of a parameter, which is as weights_form returns it, the element's place there, and how many of n
 * elements follow each other there. */
static enum status find_piece(struct st_file *f, const struct model_param *as, int64_t element, int64_t n, const char **name,
                              int64_t *there, int64_t *part)
{
    int64_t tensor, left;
    struct thirds cut;
    *part = model_param_piece(as, element, n, &tensor, there);
    TRY(weights_find(f, as, tensor, name));
    if (thirds_find(f, as, &cut)) {
        *name = thirds_place(&cut, there, &left);
        *part = min_i64(*part, left);
    }
    return OK;
}

/* Reads elements of a parameter, which is as weights_form returns it, up to the end of a piece; returns their number in *part. */
static enum status read_piece(struct st_file *f, const struct model_param *as, int64_t first, int64_t n, enum dtype type,
                              void *data, int64_t *part, int64_t *good)
{
    const char *name;
    int64_t there;
    TRY(find_piece(f, as, first, n, &name, &there, part));
    if (as->form != STACK_BESIDE)
        return st_read(f, name, there, *part, type, data, good);
    *part = n;
    return stack_read(f, name, as, first, n, type, data, good);
}

/* Refuses an element that is NaN or infinite in the file, or too large for the type. */
static enum status refuse_value(struct st_file *f, const struct model_param *p, int64_t element, enum dtype type)
{
    const char *name;
    float value;
    int64_t there, part;
    TRY(find_piece(f, p, element, 1, &name, &there, &part));
    TRY(st_read_f32(f, name, there, 1, &value));
    if (finite_until(&value, 1) == 1)
        return status_fail(ERR_INVALID, "%s: tensor %s has %g (element %lld), which %s does not hold: train with --dtype fp32",
                           st_path(f, name), name, (double)value, (long long)there, dtype_name(type));
    return status_fail(ERR_INVALID,
                       "%s: tensor %s has %s (element %lld): such weights cannot be trained; get the file again, or take an "
                       "earlier checkpoint of the run that made it",
                       st_path(f, name), name, finite_word(value), (long long)there);
}

enum status weights_read(struct st_file *f, const struct model_param *p, int64_t first, int64_t n, enum dtype type, void *data)
{
    const struct model_param as = weights_form(f, p);
    const char *mxfp4[MXFP4_TENSORS];
    int64_t good;
    if (weights_has_mxfp4(f, p)) {
        TRY(weights_find_mxfp4(f, p, mxfp4));
        return mxfp4_read(f, mxfp4, p, first, n, type, data);
    }
    for (int64_t done = 0, part; done < n; done += part) {
        TRY(read_piece(f, &as, first + done, n - done, type, (char *)data + done * dtype_size(type), &part, &good));
        if (good < part)
            return refuse_value(f, &as, first + done + good, type);
    }
    return OK;
}

/* ---- tensors that nothing uses ---- */

/* Compares two tensors; *equal: they hold the same values. */
static enum status compare(struct st_file *f, const char *a, const char *b, int *equal)
{
    enum { PIECE = 1 << 16 };
    struct st_info x, y;
    TRY(st_find(f, a, &x));
    TRY(st_find(f, b, &y));
    *equal = x.n_dims == y.n_dims && memcmp(x.shape, y.shape, sizeof x.shape) == 0;
    float *data = *equal ? sys_malloc(2 * PIECE * sizeof *data) : NULL;
    if (*equal && !data)
        return status_fail(ERR_NOMEM, "out of memory while comparing %s with %s", a, b);
    enum status st = OK;
    for (int64_t at = 0; at < x.elements && *equal && st == OK; at += PIECE) {
        int64_t n = min_i64(PIECE, x.elements - at);
        st = st_read_f32(f, a, at, n, data);
        if (st == OK)
            st = st_read_f32(f, b, at, n, data + PIECE);
        *equal = st == OK && memcmp(data, data + PIECE, (size_t)n * sizeof *data) == 0;
    }
    free(data);
    return st;
}

/* Refuses a head that differs from the embedding although config.json ties them: it would be dropped. An equal copy is no loss. */
static enum status check_tied_head(struct st_file *f, const struct model *m, const char *head)
{
    const char *embedding;
    int equal;
    TRY(weights_find(f, &m->params[m->embed], 0, &embedding));
    TRY(compare(f, head, embedding, &equal));
    if (equal)
        return OK;
    return status_fail(ERR_INVALID,
                       "%s: %s is not %s, to which config.json ties the head: set tie_word_embeddings to false there to train "
                       "with this head, or give --ignore-tensors %s to train without",
                       st_path(f, head), head, embedding, head);
}

static int compare_names(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* Finds a parameter's tensors. Of a parameter quantised in the file by bitsandbytes only the name is checked here; packed.c checks the
 * rest. */
static enum status find_used(struct st_file *f, const struct model *m, const struct model_param *p, const char **names, int *n)
{
    const struct model_param as = weights_form(f, p);
    if (m->config.mxfp4 && (p->packed_bytes > 0 || weights_has_mxfp4(f, p))) {
        TRY(weights_find_mxfp4(f, p, names + *n));
        *n += MXFP4_TENSORS;
        return OK;
    }
    if (m->config.quantised && p->packed_bytes > 0) {
        names[(*n)++] = weights_name(f, p->name);
        return names[*n - 1] != p->name ? OK : missing(f, p->name);
    }
    for (int64_t i = 0; i < model_param_tensors(&as); i++)
        TRY(weights_find(f, &as, i, &names[(*n)++]));
    return OK;
}

/* Finds where the suffix for scales, maps and the like begins in the name of a quantised matrix's part; NULL: no such suffix. */
static const char *find_suffix(const struct model *m, const char *name)
{
    const char *dot = strrchr(name, '.');
    if (m->config.base != BASE_INT8)
        return strstr(name, ".weight.");
    return dot && (strcmp(dot, ".SCB") == 0 || strcmp(dot, ".weight_format") == 0) ? dot : NULL;
}

/* Tells whether the tensor is a part of a quantised matrix in use. */
static int is_part(const struct model *m, const char *name, const char **used, int n_used)
{
    char matrix[256];
    const char *suffix = m->config.quantised ? find_suffix(m, name) : NULL, *key = matrix;
    if (!suffix || (size_t)(suffix - name) + strlen(".weight") >= sizeof matrix)
        return 0;
    snprintf(matrix, sizeof matrix, "%.*s.weight", (int)(suffix - name), name);
    return bsearch(&key, used, (size_t)n_used, sizeof *used, compare_names) != NULL;
}

/* Lists the names of the file's tensors that are parameters, sorted. */
static enum status list_used(struct st_file *f, const struct model *m, const char ***out, int *n_used)
{
    size_t most = 0;
    for (int i = 0; i < m->n_params; i++) {
        const struct model_param as = weights_form(f, &m->params[i]);
        most += (size_t)max_i64(model_param_tensors(&as), MXFP4_TENSORS);
    }
    const char **used = sys_malloc(most * sizeof *used);
    enum status st = used ? OK : status_fail(ERR_NOMEM, "out of memory: a list of %zu tensors", most);
    int n = 0;
    for (int i = 0; i < m->n_params && st == OK; i++)
        if (!m->params[i].adapter)
            st = find_used(f, m, &m->params[i], used, &n);
    if (st != OK) {
        free(used);
        return st;
    }
    qsort(used, (size_t)n, sizeof *used, compare_names);
    *out = used;
    *n_used = n;
    return OK;
}

/* Unused tensors, listed for a message. */
struct surplus {
    char names[512];
    int n;
};

static void add_name(struct surplus *s, const char *name)
{
    size_t used = strlen(s->names);
    if (s->n++ < 4)
        snprintf(s->names + used, sizeof s->names - used, "%s%.100s", used ? ", " : "", name);
}

static int ignored(const char *name, const char *const *ignore, int n_ignore, unsigned char *matched)
{
    int any = 0;
    for (int g = 0; g < n_ignore; g++)
        if (fnmatch(ignore[g], name, 0) == 0)
            any = matched[g] = 1;
    return any;
}

/* Tells whether a tensor lies outside the model that is trained: a multimodal model's text model, or all layers but those that
 * predict further tokens. */
static int is_other(const struct model *m, const char *name)
{
    return m->config.wrapped ? !model_is_wrapped_name(name) : tensor_is_further(&m->config, name);
}

static enum status find_surplus(struct st_file *f, const struct model *m, const char **used, int n_used,
                                const char *const *ignore, int n_ignore, unsigned char *matched, struct surplus *s)
{
    char head[32], wrapped[WRAPPED_NAME];
    model_head_name(&m->config, head);
    model_wrapped_name(head, WRAPPING_OLD, wrapped);
    for (int i = 0; i < st_count(f); i++) {
        const char *name = st_name(f, i);
        if (bsearch(&name, used, (size_t)n_used, sizeof *used, compare_names) || ignored(name, ignore, n_ignore, matched) ||
            model_is_buffer(&m->config, name) || is_part(m, name, used, n_used))
            continue;
        if (m->config.tied && (strcmp(name, head) == 0 || strcmp(name, wrapped) == 0))
            TRY(check_tied_head(f, m, name));
        else if (is_other(m, name))
            continue;
        else
            add_name(s, name);
    }
    return OK;
}

static enum status refuse_surplus(struct st_file *f, const struct surplus *s)
{
    char more[32] = "";
    if (s->n > 4)
        snprintf(more, sizeof more, " and %d others", s->n - 4);
    return status_fail(ERR_INVALID,
                       "%s: the model that config.json describes does not use %s%s: does config.json belong to these weights? "
                       "--ignore-tensors GLOB,... trains without them",
                       st_path(f, NULL), s->names, more);
}

enum status weights_check(struct st_file *f, const struct model *m, const char *const *ignore, int n_ignore)
{
    const char **used;
    struct surplus s = {0};
    int n_used;
    TRY(list_used(f, m, &used, &n_used));
    unsigned char *matched = sys_calloc((size_t)n_ignore + 1, 1);
    enum status st = matched ? find_surplus(f, m, used, n_used, ignore, n_ignore, matched, &s)
                             : status_fail(ERR_NOMEM, "out of memory: a list of tensors");
    if (st == OK && s.n > 0)
        st = refuse_surplus(f, &s);
    for (int g = 0; g < n_ignore && st == OK; g++)
        if (!matched[g])
            st = status_fail(ERR_INVALID, "--ignore-tensors: %s has no tensor that nothing uses and that is called %s",
                             st_path(f, NULL), ignore[g]);
    free(matched);
    free(used);
    return st;
}

/* ---- tensors beside the model that is trained ---- */

enum status weights_others(const struct st_file *f, const struct model *m, struct weights_others *out)
{
    int n = st_count(f);
    *out = (struct weights_others){.names = sys_malloc(((size_t)n + 1) * sizeof *out->names)};
    if (!out->names)
        return status_fail(ERR_NOMEM, "out of memory: a list of %d tensors", n);
    for (int i = 0; i < n; i++) {
        struct st_raw t;
        const char *name = st_name(f, i);
        if (!is_other(m, name) || model_is_buffer(&m->config, name))
            continue;
        enum status st = st_find_raw(f, name, &t);
        if (st != OK) {
            weights_others_free(out);
            return st;
        }
        out->names[out->n++] = name;
        out->bytes += t.bytes;
    }
    return OK;
}

void weights_others_free(struct weights_others *x)
{
    free(x->names);
    x->names = NULL;
}
