/* Scores of tasks, as `ltrain eval --json` prints them. */
#include "base/sys.h"
#include "report/run.h"

static enum status refuse(const char *path)
{
    return status_fail(
        ERR_INVALID,
        "report: %s is neither a run's directory nor what ltrain eval --tasks needle --json (or another task) printed", path);
}

enum status report_scores(const char *path, json_t **out)
{
    FILE *f = sys_read_text(path);
    if (!f)
        return sys_cannot_open(path);
    json_t *root = json_loadf(f, 0, NULL), *all = json_array(), *result;
    const json_t *results = json_object_get(root, "results");
    const char *model = json_string_value(json_object_get(root, "model"));
    size_t i;
    fclose(f);
    json_array_foreach(results, i, result)
    {
        const char *task = json_string_value(json_object_get(result, "task"));
        const json_t *length = json_object_get(result, "length"), *depth = json_object_get(result, "depth"),
                     *score = json_object_get(result, "score");
        if (task && json_is_integer(length) && json_is_number(score))
            json_array_append_new(all, json_pack("{s:s, s:I, s:f, s:f, s:I}", "task", task, "length", json_integer_value(length),
                                                 "depth", json_is_number(depth) ? json_number_value(depth) : -1.0, "score",
                                                 json_number_value(score), "answers",
                                                 (json_int_t)json_array_size(json_object_get(result, "answers"))));
    }
    const int found = json_array_size(all) > 0;
    if (found)
        *out = json_pack("{s:s, s:o}", "model", model ? model : path, "results", all);
    else
        json_decref(all);
    json_decref(root);
    return found ? OK : refuse(path);
}
