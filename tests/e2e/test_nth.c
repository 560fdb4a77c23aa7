/* The n-th call of each kind fails in commands with adapters, a quantised base, experts, and chats read by a tokenizer, and on one of two
 * ranks (`test_nth ranks`): success, or one sentence. Under sanitizers nothing leaks on the way out. */
#include "harness.h"

#include "extent.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define DATA " --data corpus.txt --seq-len 128" TILES

static const struct {
    const char *call, *error;
} kinds[] = {{"open", "EMFILE"},   {"close", "EIO"},        {"pread", "EIO"},   {"pwrite", "ENOSPC"}, {"fsync", "EIO"},
             {"rename", "EIO"},    {"mkdir", "EIO"},        {"stat", "EIO"},    {"malloc", "ENOMEM"}, {"mmap", "ENOMEM"},
             {"thread", "EAGAIN"}, {"fallocate", "ENOSPC"}, {"opendir", "EIO"}, {"unlink", "EIO"}};
enum { KINDS = sizeof kinds / sizeof *kinds };

/* Commands; `fresh` is a copy of the run that they change. */
struct command {
    const char *name, *arguments;
};
static const struct command commands[] = {
    {"training adapters", "--model base --lora r=2 --base nf4 --steps 3 --save-every 2 --out new" DATA},
    {"resuming them", "--resume fresh --steps 3"},
    {"evaluating", "eval --model run --eval-data corpus.txt --lengths 64 --effort quick --json"},
    {"sampling", "sample --model run --prompt ab --max-new-tokens 4 --json"},
    {"exporting", "export --model run --to new"},
    {"training experts", "--model experts --steps 2 --save-every 1 --out new" IDS},
    {"training on chats", "--model chatty --lora r=2 --steps 2 --save-every 1 --out new --data chats.jsonl --chat-template chatml"
                          " --token-cache cache --seq-len 128" TILES},
};
#define TWO_RANKS "--model tiny --steps 3 --save-every 2" DISCRETE DATA
static const struct command commands_of_ranks[] = {{"training on two ranks", TWO_RANKS "--out new"},
                                                   {"resuming on two ranks", "--resume fresh --steps 4"}};
enum {
    COMMANDS = sizeof commands / sizeof *commands,
    COMMANDS_OF_RANKS = sizeof commands_of_ranks / sizeof *commands_of_ranks,
    PATIENCE = 500
};

static int prepare(void **state)
{
    if (e2e_setup(state) != 0)
        return -1;
    e2e_succeeds(NULL, "--model tiny --steps 1 --out first" DATA);
    if (rename("first/hf", "base") != 0)
        return -1;
    e2e_experts_model("glm4-moe", "experts");
    e2e_copy("base", "chatty");
    if (system("cp $LTRAIN_SOURCE_ROOT/tests/text/families/nfkd.json chatty/tokenizer.json && "
               "cp $LTRAIN_SOURCE_ROOT/examples/chats.jsonl .") != 0)
        return -1;
    e2e_succeeds(NULL, "--model base --lora r=2 --base nf4 --steps 2 --save-every 1 --out run" DATA);
    return 0;
}

/* Starts programs on two ranks from now on, by a script (faulty_rank.sh). */
static int prepare_ranks(void **state)
{
    if (e2e_setup(state) != 0)
        return -1;
    setenv("LTRAIN_PROGRAM", getenv("LTRAIN"), 1);
    setenv("LTRAIN", getenv("LTRAIN_FAULTY_RANK"), 1);
    setenv("FAULTY", "0", 1);
    e2e_succeeds(NULL, TWO_RANKS "--out run");
    return 0;
}

/* A preparation: SIGALRM, which no test expects, ends a program that hangs. */
static int no_hang(void)
{
    alarm(PATIENCE);
    return 0;
}

static struct result run_with(const char *fault, const char *arguments)
{
    e2e_remove("new");
    e2e_remove("cache");
    e2e_copy("run", "fresh");
    return e2e_run(&(struct launch){.fault = fault, .prepare = no_hang}, "%s", arguments);
}

/* Counts the calls of each kind. */
static void count_calls(const char *arguments, int calls[KINDS])
{
    char fault[1024] = "", word[64];
    for (int k = 0; k < KINDS; k++)
        snprintf(fault + strlen(fault), sizeof fault - strlen(fault), "%s%s:1:COUNT", k ? "," : "", kinds[k].call);
    struct result r = run_with(fault, arguments);
    assert_int_equal(r.status, 0);
    for (int k = 0; k < KINDS; k++) {
        snprintf(word, sizeof word, "LTRAIN_FAULT: %s ", kinds[k].call);
        const char *found = strstr(r.err, word);
        assert_non_null(found);
        calls[k] = atoi(found + strlen(word));
    }
}

/* Tells whether one sentence is all that was said, or one of each of two ranks. */
static int is_a_sentence(const char *err)
{
    const size_t n = strlen(err);
    const char *end = strchr(err, '\n');
    if (strncmp(err, "ltrain: ", 8) != 0 || !end)
        return 0;
    if (end == err + n - 1)
        return 1;
    const char *first = strstr(err, "ltrain: rank 0: "), *second = strstr(err, "ltrain: rank 1: ");
    return first && second && (first == err || second == err) && (first == end + 1 || second == end + 1) &&
           strchr(end + 1, '\n') == err + n - 1;
}

static void fail_a_call(const struct command *x, const char *fault, int outcome[2])
{
    struct result r = run_with(fault, x->arguments);
    outcome[r.status == 0]++;
    if (r.status < 0 || r.status > 3 || (r.status == 0) != (r.err[0] == 0) || (r.status && !is_a_sentence(r.err)))
        fail_msg("%s, %s: exit status %d: %s", x->name, fault, r.status, r.err);
}

/* Fails calls of every apart-th kind, others of each command and rank (`turn`): `tries` of a kind. */
static void sweep(const struct command *x, int turn, int apart, int tries)
{
    int outcome[2] = {0}, calls[KINDS];
    count_calls(x->arguments, calls);
    for (int k = turn % apart; k < KINDS; k += apart)
        for (int i = 0; i < tries && i < calls[k]; i++) {
            char fault[64];
            /* evenly, and elsewhere for each command */
            snprintf(fault, sizeof fault, "%s:%d:%s", kinds[k].call, 1 + (int)((long)calls[k] * (5 * i + turn % 5) / (5 * tries)),
                     kinds[k].error);
            fail_a_call(x, fault, outcome);
        }
    print_message("%s: %d refused, %d absorbed\n", x->name, outcome[0], outcome[1]);
    assert_true(outcome[0] > 0 || apart > 1);
}

static void the_nth_call_fails(void **state)
{
    (void)state;
    /* every second kind, others of each command; sanitizers take ten times as long: every fifth */
    for (int c = 0; c < COMMANDS; c++)
        sweep(&commands[c], c, extent(5, 2, 1), extent(1, 1, 40));
}

/* Neither rank hangs when a call of the other one fails. */
static void the_nth_call_of_a_rank_fails(void **state)
{
    (void)state;
    for (int c = 0; c < 2 * COMMANDS_OF_RANKS; c++) {
        setenv("FAULTY", c % 2 ? "1" : "0", 1);
        sweep(&commands_of_ranks[c / 2], c, extent(7, 4, 1), extent(1, 1, 40));
    }
}

int main(int argc, char **argv)
{
    const struct CMUnitTest alone[] = {cmocka_unit_test(the_nth_call_fails)},
                            ranks[] = {cmocka_unit_test(the_nth_call_of_a_rank_fails)};
    if (argc > 1 && strcmp(argv[1], "ranks") == 0)
        return cmocka_run_group_tests_name("nth", ranks, prepare_ranks, e2e_teardown);
    return cmocka_run_group_tests_name("nth", alone, prepare, e2e_teardown);
}
