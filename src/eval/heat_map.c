#include "eval/heat_map.h"

#include "base/num.h"
#include "base/units.h"
#include "eval/result_file.h"

#include <math.h>
#include <string.h>

double heat_map_mean(const struct task_results *r, enum task t, int64_t length)
{
    double sum = 0;
    int n = 0;
    for (int i = 0; i < r->n_cells; i++) {
        const struct task_cell *c = &r->cell[i];
        if (c->answers == 0 || (t != TASKS && c->task != t) || (length > 0 && c->length != length))
            continue;
        sum += task_cell_score(c);
        n++;
    }
    return n > 0 ? sum / n : NAN;
}

/* Returns the score of a cell; NaN: it has no answers. row: index of the task's depth. */
static double score_at(const struct task_results *r, enum task t, int64_t length, int row)
{
    for (int i = 0; i < r->n_cells; i++) {
        const struct task_cell *c = &r->cell[i];
        if (c->task == t && c->length == length && (isnan(c->depth) || c->depth == r->depth[row]))
            return c->answers > 0 ? task_cell_score(c) : NAN;
    }
    return NAN;
}

static int rows_of(const struct task_results *r, enum task t)
{
    return task_has_depth(t) ? r->n_depths : 1;
}

/* Sets a colour from red by yellow to green; the steps also differ in shades of grey. */
static void colour_of(double score, int rgb[3])
{
    static const int stops[3][3] = {{178, 34, 52}, {244, 196, 80}, {190, 232, 150}};
    const int low = score < 0.5 ? 0 : 1;
    const double part = 2 * score - low;
    for (int i = 0; i < 3; i++)
        rgb[i] = (int)lround(stops[low][i] + part * (stops[low + 1][i] - stops[low][i]));
}

/* ---- text ---- */

static void print_score(double score, int coloured, FILE *f)
{
    int rgb[3];
    if (isnan(score)) {
        fprintf(f, " %10s", "-");
        return;
    }
    colour_of(score, rgb);
    if (coloured)
        fprintf(f, " \033[48;2;%d;%d;%dm\033[38;2;%sm%10.0f\033[0m", rgb[0], rgb[1], rgb[2],
                score < 0.25 ? "255;255;255" : "0;0;0", 100 * score);
    else
        fprintf(f, " %10.0f", 100 * score);
}

static void print_lengths(const struct task_results *r, const char *first, int width, FILE *f)
{
    char text[32];
    fprintf(f, "%*s", width, first);
    for (int i = 0; i < r->n_lengths; i++)
        fprintf(f, " %10s", units_format_count(r->length[i], text));
}

static void print_task(const struct task_results *r, enum task t, int coloured, FILE *f)
{
    enum { WIDTH = 8 };
    fprintf(f, "\n%s\n", task_name(t));
    print_lengths(r, "depth", WIDTH, f);
    fputc('\n', f);
    for (int row = 0; row < rows_of(r, t); row++) {
        char name[32] = "-";
        if (task_has_depth(t))
            snprintf(name, sizeof name, "%g%%", round(10 * r->depth[row]) / 10);
        fprintf(f, "%*s", WIDTH, name);
        for (int i = 0; i < r->n_lengths; i++)
            print_score(score_at(r, t, r->length[i], row), coloured, f);
        fputc('\n', f);
    }
}

static void print_means(const struct task_results *r, int coloured, FILE *f)
{
    enum { WIDTH = 14 };
    fputc('\n', f);
    print_lengths(r, "mean", WIDTH, f);
    fprintf(f, " %10s\n", "all");
    for (int k = 0; k <= r->n_tasks; k++) {
        const enum task t = k < r->n_tasks ? r->task[k] : TASKS;
        if (t == TASKS && r->n_tasks == 1)
            continue;
        fprintf(f, "%*s", WIDTH, t == TASKS ? "all" : task_name(t));
        for (int i = 0; i < r->n_lengths; i++)
            print_score(heat_map_mean(r, t, r->length[i]), coloured, f);
        print_score(heat_map_mean(r, t, 0), coloured, f);
        fputc('\n', f);
    }
}

void heat_map_print(const struct task_results *r, int coloured, FILE *f)
{
    char bytes[32], all[32];
    fprintf(f, "Percent of what was asked for that the answers contain: greedy, %lld answer%s a cell, %s;\n",
            (long long)r->samples, r->samples == 1 ? "" : "s", r->chat ? "by the chat template" : "prompts read on as they are");
    if (r->haystack_bytes > 0)
        fprintf(f, "haystack: %s of text%s\n", units_format_bytes(r->haystack_bytes, bytes),
                r->repeats ? ", which is too short for the longest length and is repeated" : "");
    else
        fprintf(f, "haystack: ltrain's own five sentences, repeated (--data gives another one)\n");
    if (r->positions > 0 && task_longest(r) > r->positions)
        fprintf(f, "warning: lengths above %s are beyond the positions that the model was made for (--rope stretches them)\n",
                units_format_count(r->positions, bytes));
    if (r->n_answers < task_answers_wanted(r))
        fprintf(f, "ended early: %s of %s answers\n", units_format_count(r->n_answers, bytes),
                units_format_count(task_answers_wanted(r), all));
    for (int k = 0; k < r->n_tasks; k++)
        print_task(r, r->task[k], coloured, f);
    print_means(r, coloured, f);
}

/* ---- a picture ---- */

enum { CELL_WIDTH = 84, CELL_HEIGHT = 28, LEFT = 90, TOP = 64, TITLE = 48, RIGHT = 24 };

static void escaped(const char *text, FILE *f)
{
    for (; *text; text++)
        *text == '<' ? fputs("&lt;", f) : *text == '&' ? fputs("&amp;", f) : fputc(*text, f);
}

static void draw_cell(double score, int x, int y, FILE *f)
{
    int rgb[3];
    if (isnan(score)) {
        fprintf(f, "<rect x=\"%d\" y=\"%d\" width=\"%d\" height=\"%d\" fill=\"#eee\"/>\n", x, y, CELL_WIDTH - 2, CELL_HEIGHT - 2);
        return;
    }
    colour_of(score, rgb);
    fprintf(f,
            "<rect x=\"%d\" y=\"%d\" width=\"%d\" height=\"%d\" fill=\"#%02x%02x%02x\"/>"
            "<text x=\"%d\" y=\"%d\" text-anchor=\"middle\" fill=\"#%s\">%.0f</text>\n",
            x, y, CELL_WIDTH - 2, CELL_HEIGHT - 2, rgb[0], rgb[1], rgb[2], x + CELL_WIDTH / 2, y + CELL_HEIGHT / 2 + 4,
            score < 0.25 ? "fff" : "000", 100 * score);
}

static int draw_task(const struct task_results *r, enum task t, int y, FILE *f)
{
    char text[32];
    fprintf(f, "<text x=\"%d\" y=\"%d\" font-weight=\"bold\">%s, mean %.1f</text>\n", LEFT, y + 18, task_name(t),
            100 * heat_map_mean(r, t, 0));
    for (int i = 0; i < r->n_lengths; i++)
        fprintf(f, "<text x=\"%d\" y=\"%d\" text-anchor=\"middle\">%s</text>\n", LEFT + i * CELL_WIDTH + CELL_WIDTH / 2, y + 38,
                units_format_count(r->length[i], text));
    y += TITLE;
    for (int row = 0; row < rows_of(r, t); row++, y += CELL_HEIGHT) {
        if (task_has_depth(t))
            fprintf(f, "<text x=\"%d\" y=\"%d\" text-anchor=\"end\">%g%%</text>\n", LEFT - 10, y + CELL_HEIGHT / 2 + 4,
                    round(10 * r->depth[row]) / 10);
        for (int i = 0; i < r->n_lengths; i++)
            draw_cell(score_at(r, t, r->length[i], row), LEFT + i * CELL_WIDTH, y, f);
    }
    return y;
}

enum status heat_map_write_svg(const struct task_results *r, const char *model, const char *path)
{
    const int width = LEFT + (int)max_i64(r->n_lengths, 5) * CELL_WIDTH + RIGHT;
    int height = TOP + 12, y = TOP;
    struct result_file file;
    TRY(result_file_begin(&file, "svg", path));
    FILE *f = file.f;
    for (int k = 0; k < r->n_tasks; k++)
        height += TITLE + rows_of(r, r->task[k]) * CELL_HEIGHT;
    fprintf(
        f,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\" font-family=\"sans-serif\" font-size=\"12\">\n"
        "<rect width=\"100%%\" height=\"100%%\" fill=\"#fff\"/>\n<text x=\"%d\" y=\"24\" font-size=\"15\" font-weight=\"bold\">",
        width, height, LEFT);
    escaped(model, f);
    fprintf(f,
            "</text>\n<text x=\"%d\" y=\"44\">percent found, by tokens (across) and depth (down); %lld answer%s a cell</text>\n",
            LEFT, (long long)r->samples, r->samples == 1 ? "" : "s");
    for (int k = 0; k < r->n_tasks; k++)
        y = draw_task(r, r->task[k], y, f);
    fprintf(f, "</svg>\n");
    return result_file_end(&file, OK);
}
