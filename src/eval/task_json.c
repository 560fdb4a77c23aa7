#include "eval/task_json.h"

#include "eval/heat_map.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>

static json_t *number(double x)
{
    return isnan(x) ? json_null() : json_real(x);
}

static json_t *answer_object(const struct task_answer *a)
{
    char hash[32];
    json_t *expected = json_array();
    for (int i = 0; i < a->n_expected; i++)
        json_array_append_new(expected, json_string(a->expected[i]));
    snprintf(hash, sizeof hash, "%016" PRIx64, a->hash);
    return json_pack("{s:I, s:s, s:o, s:o, s:s, s:f, s:f}", "prompt_tokens", (json_int_t)a->prompt_tokens, "prompt_xxh3", hash,
                     "depth", number(a->depth), "expected", expected, "answer", a->text, "score", a->score, "seconds",
                     a->seconds);
}

static json_t *cell_object(const struct task_results *r, int cell)
{
    const struct task_cell *c = &r->cell[cell];
    json_t *answers = json_array();
    for (int64_t i = 0; i < r->n_answers; i++)
        if (r->answer[i].cell == cell)
            json_array_append_new(answers, answer_object(&r->answer[i]));
    return json_pack("{s:s, s:I, s:o, s:f, s:o}", "task", task_name(c->task), "length", (json_int_t)c->length, "depth",
                     number(c->depth), "score", task_cell_score(c), "answers", answers);
}

void task_json_add(const struct task_results *r, json_t *object, json_t *results)
{
    json_t *means = json_array();
    for (int i = 0; i < r->n_cells; i++)
        if (r->cell[i].answers > 0)
            json_array_append_new(results, cell_object(r, i));
    for (int t = 0; t < r->n_tasks; t++)
        for (int l = 0; l < r->n_lengths; l++)
            json_array_append_new(means,
                                  json_pack("{s:s, s:I, s:o}", "task", task_name(r->task[t]), "length", (json_int_t)r->length[l],
                                            "score", number(heat_map_mean(r, r->task[t], r->length[l]))));
    json_object_set_new(object, "means", means);
    json_object_set_new(object, "haystack_bytes", json_integer(r->haystack_bytes));
    json_object_set_new(object, "haystack_repeats", json_boolean(r->repeats));
    json_object_set_new(object, "answers", json_integer(r->n_answers));
    json_object_set_new(object, "answers_wanted", json_integer(task_answers_wanted(r)));
    json_object_set_new(object, "chat", json_boolean(r->chat));
}
