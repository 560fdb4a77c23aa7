/* Task: counting how often a certain sentence occurs in a haystack (after Counting-Stars, Song et al. 2024). */
#include "tasks/generators.h"

#include <stdio.h>

enum { FEWEST = 2, MOST = 10 };

/* Draws the places of the sentence: the first at the requested depth, the others anywhere behind it. */
static void draw_places(const struct task_request *r, struct dice *d, struct planted *star, int n)
{
    star[0].depth = r->depth;
    for (int i = 1; i < n; i++) {
        const double depth = r->depth + (100 - r->depth) * (double)dice_roll(d, 1000000) / 1e6;
        int at = i;
        for (; star[at - 1].depth > depth; at--)
            star[at].depth = star[at - 1].depth;
        star[at].depth = depth;
    }
}

enum status task_build_counting(const struct task_request *r, struct dice *d, int64_t size, struct task_sample *out)
{
    struct planted star[MOST];
    char number[16];
    const int n = FEWEST + (int)dice_roll(d, MOST - FEWEST + 1);
    _Static_assert(MOST <= sizeof out->planted / sizeof out->planted[0], "places of all of them are noted");
    for (int i = 0; i < n; i++)
        snprintf(star[i].text, sizeof star[i].text, "The little penguin counted a star.");
    draw_places(r, d, star, n);
    if (haystack_has(r->haystack, "little penguin counted a star"))
        return status_fail(ERR_INVALID, "the haystack has the sentence that --tasks counting hides in it: give another text");
    TRY(text_buffer_print(&out->prompt,
                          "Some sentences about a little penguin who counts stars are hidden within the following text. Count "
                          "them. I will quiz you about their number afterwards.\n"));
    TRY(task_weave(r, d, size, star, n, out));
    TRY(text_buffer_print(&out->prompt, "\nHow many times does the provided text say that the little penguin counted a star?"));
    TRY(text_buffer_print(&out->lead, " The number of times that the little penguin counted a star in the provided text is"));
    snprintf(number, sizeof number, "%d", n);
    task_expect(out, number);
    out->is_number = 1;
    return text_buffer_print(&out->answer, " %d.", n);
}
