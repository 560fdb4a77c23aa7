/* Runs the stories of seeds.
 *
 * Usage: simulate [run SEED | shrink SEED | bugs [--long] | [--from SEED] [--seeds N]]. Exits with 1 and names the seeds that fail. `run`
 * tells what happens in one seed, `shrink` makes it as short as it still fails; `bugs` plants protocol bugs, each of which some seed must
 * find. */
#include "story.h"

#include "extent.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const count_names[COUNTS] = {"killed",  "failed with a sentence", "stopped by a signal",
                                                "resumed", "on another mesh",        "begun anew"};

/* Runs n seeds; stops at the first that fails if `one`. Returns the number that failed; *last: the last seed. */
static int run_seeds(uint64_t from, int64_t n, int one, uint64_t *last)
{
    int bad = 0;
    for (uint64_t s = from; s < from + (uint64_t)n && !(bad && one); s++) {
        struct story x;
        *last = s;
        story_draw(s, &x);
        if (story_tells)
            story_print(&x);
        if (story_live(&x))
            continue;
        if (!one)
            printf("seed %llu: %s\n", (unsigned long long)s, story_shared->text);
        fflush(stdout);
        bad++;
    }
    return bad;
}

/* Plants each bug and looks for the first seed that finds it. */
static int find_bugs(int64_t most)
{
    int missed = 0;
    for (int b = BUG_NONE + 1; b < BUGS; b++) {
        uint64_t last = 0;
        world_bug = (enum bug)b;
        const int found = run_seeds(1, most, 1, &last);
        missed += !found;
        printf("%s: %s by %llu seeds: %s\n", world_bug_names[b], found ? "found" : "not found", (unsigned long long)last,
               found ? story_shared->text : "");
        fflush(stdout);
    }
    return missed;
}

static int shrink(uint64_t seed)
{
    struct story x;
    story_draw(seed, &x);
    if (story_live(&x)) {
        printf("seed %llu does not fail\n", (unsigned long long)seed);
        return 0;
    }
    story_shrink(&x);
    story_tells = 1;
    story_live(&x);
    story_print(&x);
    printf("%s\n", story_shared->text);
    return 1;
}

static int run_command(const char *what, uint64_t from, int64_t n)
{
    uint64_t last;
    if (!story_begin() || !story_find_truths()) {
        printf("%s\n", story_shared->text);
        return 1;
    }
    if (strcmp(what, "bugs") == 0)
        return find_bugs(500);
    if (strcmp(what, "shrink") == 0)
        return shrink(from);
    const int bad = run_seeds(from, n, 0, &last);
    printf("%lld seeds, %d failed; ranks and lives:", (long long)n, bad);
    for (int i = 0; i < COUNTS; i++)
        printf("%s %d %s", i ? "," : "", story_shared->counts[i], count_names[i]);
    printf("\n");
    return bad;
}

int main(int argc, char **argv)
{
    const char *what = argc > 1 ? argv[1] : "";
    uint64_t from = 1;
    int64_t n = extent(3, 16, 20000);
    story_tells = strcmp(what, "run") == 0;
    if (argc > 2 && (story_tells || strcmp(what, "shrink") == 0)) {
        from = strtoull(argv[2], NULL, 10);
        n = 1;
    }
    for (int i = 1; i + 1 < argc; i++) {
        if (strcmp(argv[i], "--from") == 0)
            from = strtoull(argv[i + 1], NULL, 10);
        if (strcmp(argv[i], "--seeds") == 0)
            n = strtoll(argv[i + 1], NULL, 10);
    }
    if (argc > 2 && strcmp(argv[2], "--long") == 0 && !extent_is_long()) {
        printf("skipped: planted bugs are looked for with LTRAIN_LONG\n");
        return 77;
    }
    const int bad = run_command(what, from, n);
    story_end();
    return bad > 0;
}
