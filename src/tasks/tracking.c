/* Task: variables that are assigned a number, or each other's value (RULER's variable tracking), with a second chain of variables
 * as a distractor. */
#include "tasks/generators.h"

#include <stdio.h>
#include <string.h>

enum { CHAINS = 2, VARIABLES = 5, ALL = CHAINS * VARIABLES }; /* VARIABLES: per chain, as in RULER with four hops */

static void draw_name(struct dice *d, char *out)
{
    name_draw(d, out);
}

static void draw_number(struct dice *d, char *out)
{
    snprintf(out, NUMBER_BYTES, "%05u", 10000u + (unsigned)dice_roll(d, 90000));
}

static int is_among(const char (*name)[NAME_BYTES], int n)
{
    for (int i = 0; i < n; i++)
        if (strcmp(name[i], name[n]) == 0)
            return 1;
    return 0;
}

/* Draws all variables' names, name[chain * VARIABLES + hop], all different, and the number of each chain. */
static enum status draw(const struct task_request *r, struct dice *d, char (*name)[NAME_BYTES], char (*number)[NUMBER_BYTES])
{
    for (int i = 0; i < ALL; i++)
        do
            TRY(task_draw_new(r, d, draw_name, name[i]));
        while (is_among((const char(*)[NAME_BYTES])name, i));
    do
        for (int c = 0; c < CHAINS; c++)
            TRY(task_draw_new(r, d, draw_number, number[c]));
    while (strcmp(number[0], number[1]) == 0);
    return OK;
}

enum status task_build_tracking(const struct task_request *r, struct dice *d, int64_t size, struct task_sample *out)
{
    struct planted line[ALL];
    char name[ALL][NAME_BYTES], number[CHAINS][NUMBER_BYTES];
    TRY(draw(r, d, name, number));
    const int second = (int)dice_roll(d, 2); /* 1: the chain that is asked for is written behind the other */
    for (int i = 0; i < ALL; i++) {
        const int hop = i / CHAINS, chain = (i + second) % CHAINS, at = chain * VARIABLES + hop;
        if (hop == 0)
            snprintf(line[i].text, sizeof line[i].text, "VAR %s = %s.", name[at], number[chain]);
        else
            snprintf(line[i].text, sizeof line[i].text, "VAR %s = VAR %s.", name[at], name[at - 1]);
        line[i].depth = task_spread(r, i, ALL);
    }
    TRY(text_buffer_print(&out->prompt,
                          "Memorize and track the chains of variable assignment hidden in the following text.\n\n"));
    TRY(task_weave(r, d, size, line, ALL, out));
    TRY(text_buffer_print(&out->prompt, "\nQuestion: Find all variables that are assigned the value %s in the text above.",
                          number[0]));
    TRY(text_buffer_print(
        &out->lead,
        " Answer: According to the chains of variable assignment in the text above, %d variables are assigned the value "
        "%s, they are:",
        VARIABLES, number[0]));
    for (int i = 0; i < VARIABLES; i++) {
        task_expect(out, name[i]);
        TRY(text_buffer_print(&out->answer, "%s %s", i ? "," : "", name[i]));
    }
    return text_buffer_print(&out->answer, ".");
}
