/* Value numbers: the content of every byte as a formula over the inputs, hashed.
 *
 * A byte's value is (formula, place in its result). An instruction's output argument is one formula: the op, its attributes, the
 * argument's number, and for every input argument the list of values it holds, adjacent pieces of one formula joined. Copies pass
 * values on. Nothing else enters, so two programs that place, move, cut and reuse memory differently have the same values if they
 * compute the same things. A copy of bytes that hold several values makes them a list that the destination's one segment refers
 * to: no new end points arise. */
#include "verify/value_numbers.h"

#include "base/mix.h"
#include "base/sys.h"
#include "verify/byte_map.h"
#include "verify/form.h"

#include <stdlib.h>
#include <string.h>

/* `bytes` bytes of the result of formula `hash`, from byte `place` on. */
struct piece {
    uint64_t hash;
    int64_t place, bytes;
};

struct pieces {
    struct piece *at;
    int64_t n, cap;
};

/* A list of pieces, made by a copy: pieces [first, first + n) of the pool. */
struct list {
    int64_t first, n;
};

struct cell {
    uint64_t hash;  /* hash of the formula; unused in a list */
    int64_t origin; /* byte of the formula's result (or of the list) minus address: the same for all bytes of the value */
    int32_t list;   /* number of the list of pieces; -1: the value is a single formula */
};

struct values {
    const struct program *p;
    struct footprint bytes;
    struct pieces pool;   /* pieces of all lists; their `place` is a byte of the formula's result */
    int64_t *pool_offset; /* for each piece of the pool: the byte at which it begins in its list */
    int64_t pool_offset_cap;
    struct list *lists;
    int32_t n_lists, cap_lists;
    struct pieces work; /* pieces that are being collected */
};

/* Formulas whose bytes are all equal: their places are omitted, so that it does not matter where they are cut. */
#define HASH_UNDEFINED 1u
#define HASH_ZERO 2u

static int is_uniform(uint64_t hash)
{
    return hash == HASH_UNDEFINED || hash == HASH_ZERO;
}

static enum status reserve(void **table, int64_t n, int64_t *cap, size_t size)
{
    if (n < *cap)
        return OK;
    int64_t bigger = *cap ? *cap * 2 : 256;
    void *moved = sys_malloc((size_t)bigger * size);
    if (!moved)
        return status_fail(ERR_NOMEM, "out of memory while numbering values");
    if (*cap)
        memcpy(moved, *table, (size_t)*cap * size);
    free(*table);
    *table = moved;
    *cap = bigger;
    return OK;
}

/* Appends a piece, and joins it with the last one if that continues it. Pieces before index `joinable` belong to other lists and
 * are not joined. */
static enum status append(struct pieces *list, int64_t joinable, uint64_t hash, int64_t place, int64_t bytes)
{
    if (is_uniform(hash))
        place = 0;
    if (list->n > joinable) {
        struct piece *last = &list->at[list->n - 1];
        if (last->hash == hash && (is_uniform(hash) || last->place + last->bytes == place)) {
            last->bytes += bytes;
            return OK;
        }
    }
    TRY(reserve((void **)&list->at, list->n, &list->cap, sizeof *list->at));
    list->at[list->n++] = (struct piece){hash, place, bytes};
    return OK;
}

/* Appends the values of `bytes` bytes of a list to v->work, from the list's byte `from` on. */
static enum status gather_list(struct values *v, const struct list *l, int64_t from, int64_t bytes)
{
    int64_t low = l->first, high = l->first + l->n - 1; /* the last piece that begins at or before `from` */
    while (low < high) {
        int64_t middle = low + (high - low + 1) / 2;
        if (v->pool_offset[middle] <= from)
            low = middle;
        else
            high = middle - 1;
    }
    for (; bytes > 0; low++) {
        const struct piece *x = &v->pool.at[low];
        int64_t skip = from - v->pool_offset[low], step = min_i64(x->bytes - skip, bytes);
        TRY(append(&v->work, 0, x->hash, x->place + skip, step));
        from += step;
        bytes -= step;
    }
    return OK;
}

/* Appends the values of a span, which must have been cut, to v->work. */
static enum status gather(struct values *v, const struct byte_map *m, struct span s)
{
    for (int i = s.first; i < s.last; i = m->next[i]) {
        const struct cell *c = byte_map_cell(m, i);
        int64_t bytes = m->at[m->next[i]] - m->at[i], place = m->at[i] + c->origin;
        TRY(c->list >= 0 ? gather_list(v, &v->lists[c->list], place, bytes) : append(&v->work, 0, c->hash, place, bytes));
    }
    return OK;
}

static struct byte_map *map_of(struct values *v, int operand)
{
    return &v->bytes.tier[v->p->buffers[v->p->operands[operand].buffer].tier];
}

/* Sets the values of an operand's bytes to those of formula `hash`, or of a list, from byte `place` on. */
static void assign(struct values *v, int operand, uint64_t hash, int32_t list, int64_t place)
{
    struct byte_map *m = map_of(v, operand);
    struct span s = v->bytes.operand[operand];
    byte_map_cut(m, s);
    byte_map_join(m, s);
    *(struct cell *)byte_map_cell(m, s.first) = (struct cell){hash, place - m->at[s.first], list};
}

/* --- Copies --- */

/* Makes a list of the pieces in v->work. */
static enum status make_list(struct values *v, int32_t *list)
{
    int64_t cap = v->cap_lists, offset = 0;
    TRY(reserve((void **)&v->lists, v->n_lists, &cap, sizeof *v->lists));
    v->cap_lists = (int32_t)cap;
    v->lists[v->n_lists] = (struct list){v->pool.n, v->work.n};
    for (int64_t i = 0; i < v->work.n; i++) {
        const struct piece *x = &v->work.at[i];
        TRY(reserve((void **)&v->pool_offset, v->pool.n, &v->pool_offset_cap, sizeof *v->pool_offset));
        v->pool_offset[v->pool.n] = offset;
        TRY(append(&v->pool, v->pool.n, x->hash, x->place, x->bytes));
        offset += x->bytes;
    }
    *list = v->n_lists++;
    return OK;
}

/* Finds the value that a copy's source holds, as a single cell with the origin relative to the source's start. */
static enum status copied_value(struct values *v, const struct instr *in, struct cell *value)
{
    const struct operand *o = v->p->operands;
    int end = in->first_operand + in->n_operands, sources = 0, only = -1;
    for (int k = in->first_operand; k < end; k++) {
        if (o[k].access == ACCESS_READ) {
            byte_map_cut(map_of(v, k), v->bytes.operand[k]);
            sources++;
            only = k;
        }
    }
    if (sources == 1) { /* the usual case: lists are shared instead of copied */
        struct span s = v->bytes.operand[only];
        const struct byte_map *m = map_of(v, only);
        if (m->next[s.first] == s.last) {
            *value = *(struct cell *)byte_map_cell(m, s.first);
            value->origin += m->at[s.first];
            return OK;
        }
    }
    v->work.n = 0;
    for (int k = in->first_operand; k < end; k++) {
        if (o[k].access == ACCESS_READ)
            TRY(gather(v, map_of(v, k), v->bytes.operand[k]));
    }
    *value = (struct cell){v->work.at[0].hash, v->work.at[0].place, -1};
    if (v->work.n > 1) {
        value->origin = 0;
        TRY(make_list(v, &value->list));
    }
    return OK;
}

static enum status number_copy(struct values *v, const struct instr *in)
{
    struct cell value;
    int64_t done = 0;
    TRY(copied_value(v, in, &value));
    for (int k = in->first_operand; k < in->first_operand + in->n_operands; k++) {
        if (v->p->operands[k].access != ACCESS_READ) {
            assign(v, k, value.hash, value.list, value.origin + done);
            done += v->p->operands[k].bytes;
        }
    }
    return OK;
}

/* --- Ops --- */

/* Hashes the op, its attributes and the values of its inputs. */
static enum status number_inputs(struct values *v, const struct instr *in, uint64_t *hash)
{
    const struct operand *o = v->p->operands;
    int end = in->first_operand + in->n_operands;
    uint64_t words[sizeof(struct op_attrs) / sizeof(uint64_t)], h = mix(3, (uint64_t)in->op);
    memcpy(words, &program_call(v->p, in)->attrs, sizeof words);
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        h = mix(h, words[i]);
    h = mix(h, (uint64_t)in->predicate);
    if (lane_is_comm(in->lane)) /* values of different groups differ; all members of a group compute the same formula */
        h = mix(mix(h, (uint64_t)in->lane), (uint64_t)v->p->group_size[in->lane]);
    for (int k = in->first_operand, next; k < end; k = next) {
        v->work.n = 0;
        for (next = k; next < end && o[next].arg == o[k].arg; next++) {
            if (o[next].access & ACCESS_READ) {
                byte_map_cut(map_of(v, next), v->bytes.operand[next]);
                TRY(gather(v, map_of(v, next), v->bytes.operand[next]));
            }
        }
        if (v->work.n == 0)
            continue;
        h = mix(mix(h, (uint64_t)o[k].arg), (uint64_t)v->work.n);
        for (int64_t i = 0; i < v->work.n; i++)
            h = mix(mix(mix(h, v->work.at[i].hash), (uint64_t)v->work.at[i].place), (uint64_t)v->work.at[i].bytes);
    }
    *hash = h;
    return OK;
}

static enum status number_op(struct values *v, const struct instr *in)
{
    const struct operand *o = v->p->operands;
    uint64_t inputs;
    int64_t place = 0;
    TRY(number_inputs(v, in, &inputs));
    for (int k = in->first_operand; k < in->first_operand + in->n_operands; k++) {
        if (k == in->first_operand || o[k].arg != o[k - 1].arg)
            place = 0;
        if (o[k].access != ACCESS_READ) {
            uint64_t hash = o[k].tensor < 0 ? HASH_UNDEFINED : in->op == OP_FILL ? HASH_ZERO : mix(inputs, (uint64_t)o[k].arg);
            assign(v, k, hash, -1, place);
        }
        place += o[k].bytes;
    }
    return OK;
}

static void number_live_in(struct values *v)
{
    const struct program *p = v->p;
    for (int b = 0; b < p->n_live_in; b++) {
        const struct tensor *t = &p->tensors[p->live_in[b].tensor];
        struct byte_map *m = &v->bytes.tier[p->buffers[p->live_in[b].buffer].tier];
        struct span s = v->bytes.live_in[b];
        byte_map_cut(m, s);
        byte_map_join(m, s);
        *(struct cell *)byte_map_cell(m, s.first) =
            (struct cell){mix_text(4, t->name), p->live_in[b].row0 * t->row_bytes - m->at[s.first], -1};
    }
}

/* --- The digest --- */

/* A piece of a result: `bytes` bytes, from byte `at` on, of the tensor called `name`. */
struct result {
    const char *name;
    int64_t at;
    struct piece value;
};

static int compare_results(const void *a, const void *b)
{
    const struct result *x = a, *y = b;
    int names = strcmp(x->name, y->name);
    if (names)
        return names;
    return x->at != y->at ? (x->at < y->at ? -1 : 1) : (x->value.bytes > y->value.bytes) - (x->value.bytes < y->value.bytes);
}

static enum status collect_results(struct values *v, struct result **results, int64_t *n)
{
    const struct program *p = v->p;
    int64_t cap = 0;
    for (int b = 0; b < p->n_live_out; b++) {
        const struct binding *x = &p->live_out[b];
        struct byte_map *m = &v->bytes.tier[p->buffers[x->buffer].tier];
        int64_t at = x->row0 * p->tensors[x->tensor].row_bytes;
        byte_map_cut(m, v->bytes.live_out[b]);
        v->work.n = 0;
        TRY(gather(v, m, v->bytes.live_out[b]));
        for (int64_t i = 0; i < v->work.n; i++) {
            TRY(reserve((void **)results, *n, &cap, sizeof **results));
            (*results)[(*n)++] = (struct result){p->tensors[x->tensor].name, at, v->work.at[i]};
            at += v->work.at[i].bytes;
        }
    }
    return OK;
}

/* Tells whether b has the same values for the bytes that it shares with a, or continues a. */
static int continues(const struct result *a, const struct result *b)
{
    return strcmp(a->name, b->name) == 0 && b->at <= a->at + a->value.bytes && a->value.hash == b->value.hash &&
           (is_uniform(a->value.hash) || b->value.place - a->value.place == b->at - a->at);
}

static enum status digest_results(const struct program *p, struct result *r, int64_t n, uint64_t *digest)
{
    uint64_t h = 5;
    if (n > 0)
        qsort(r, (size_t)n, sizeof *r, compare_results);
    for (int64_t i = 0, next; i < n; i = next) {
        for (next = i + 1; next < n && continues(&r[i], &r[next]); next++)
            r[i].value.bytes = max_i64(r[i].value.bytes, r[next].at + r[next].value.bytes - r[i].at);
        if (next < n && strcmp(r[i].name, r[next].name) == 0 && r[next].at < r[i].at + r[i].value.bytes)
            return status_fail(ERR_CORRUPT, "program %s: two live-out bindings of the same rows of %s hold different values",
                               p->name, r[i].name);
        h = mix(mix(mix_text(h, r[i].name), (uint64_t)r[i].at), r[i].value.hash);
        h = mix(mix(h, (uint64_t)r[i].value.place), (uint64_t)r[i].value.bytes);
    }
    *digest = h;
    return OK;
}

enum status program_value_digest(const struct program *p, uint64_t *digest)
{
    struct values v;
    struct result *results = NULL;
    int64_t n_results = 0;
    const struct cell undefined = {HASH_UNDEFINED, 0, -1};
    enum status st;
    memset(&v, 0, sizeof v);
    v.p = p;
    TRY(verify_form(p));
    TRY(footprint_create(p, sizeof(struct cell), &undefined, &v.bytes));
    number_live_in(&v);
    for (int i = 0; i < p->n_instrs; i++)
        TRY_GOTO(p->instrs[i].op == OP_COPY ? number_copy(&v, &p->instrs[i]) : number_op(&v, &p->instrs[i]), done);
    TRY_GOTO(collect_results(&v, &results, &n_results), done);
    st = digest_results(p, results, n_results, digest);
done:
    footprint_destroy(&v.bytes);
    free(v.pool.at);
    free(v.pool_offset);
    free(v.lists);
    free(v.work.at);
    free(results);
    return st;
}
