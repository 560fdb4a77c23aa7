/* The n-th call of each kind fails in commands with adapters, a quantised base, experts, and chats read by a tokenizer: success, or one
 * sentence. Under sanitizers nothing leaks on the way out. */
#include "harness.h"

#include "extent.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define DATA " --data corpus.txt --seq-len 128" TILES

static const struct {
    const char *call, *error;
} kinds[] = {{"open", "EMFILE"},   {"close", "EIO"},        {"pread", "EIO"},   {"pwrite", "ENOSPC"}, {"fsync", "EIO"},
             {"rename", "EIO"},    {"mkdir", "EIO"},        {"stat", "EIO"},    {"malloc", "ENOMEM"}, {"mmap", "ENOMEM"},
             {"thread", "EAGAIN"}, {"fallocate", "ENOSPC"}, {"opendir", "EIO"}, {"unlink", "EIO"}};
enum { KINDS = sizeof kinds / sizeof *kinds };

/* Commands; `fresh` is a copy of the run that they change. */
static const struct {
    const char *name, *arguments;
} commands[] = {
    {"training adapters", "--model base --lora r=2 --base nf4 --steps 3 --save-every 2 --out new" DATA},
    {"resuming them", "--resume fresh --steps 3"},
    {"evaluating", "eval --model run --eval-data corpus.txt --lengths 64 --effort quick --json"},
    {"sampling", "sample --model run --prompt ab --max-new-tokens 4 --json"},
    {"exporting", "export --model run --to new"},
    {"training experts", "--model experts --steps 2 --save-every 1 --out new" IDS},
    {"training on chats", "--model chatty --lora r=2 --steps 2 --save-every 1 --out new --data chats.jsonl --chat-template chatml"
                          " --token-cache cache --seq-len 128" TILES},
};
enum { COMMANDS = sizeof commands / sizeof *commands };

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

static struct result run_with(const char *fault, const char *arguments)
{
    e2e_remove("new");
    e2e_remove("cache");
    e2e_copy("run", "fresh");
    return e2e_run(&(struct launch){.fault = fault}, "%s", arguments);
}

/* Returns the number of calls of a kind; 0: none. */
static int count_calls(const char *call, const char *arguments)
{
    char fault[64], word[64];
    snprintf(fault, sizeof fault, "%s:1:COUNT", call);
    snprintf(word, sizeof word, "LTRAIN_FAULT: %s ", call);
    struct result r = run_with(fault, arguments);
    assert_int_equal(r.status, 0);
    const char *found = strstr(r.err, word);
    assert_non_null(found);
    return atoi(found + strlen(word));
}

static void the_nth_call_fails(void **state)
{
    (void)state;
    const int tries = extent(1, 1, 40),
              apart =
                  extent(5, 2, 1); /* every second kind, others of each command; sanitizers take ten times as long: every fifth */
    for (int c = 0; c < COMMANDS; c++) {
        int refused = 0, absorbed = 0;
        for (int k = c % apart; k < KINDS; k += apart) {
            const int calls = count_calls(kinds[k].call, commands[c].arguments);
            for (int i = 0; i < tries && i < calls; i++) {
                char fault[64];
                /* evenly, and elsewhere for each command */
                snprintf(fault, sizeof fault, "%s:%d:%s", kinds[k].call, 1 + (int)((long)calls * (5 * i + c % 5) / (5 * tries)),
                         kinds[k].error);
                struct result r = run_with(fault, commands[c].arguments);
                const size_t n = strlen(r.err);
                refused += r.status != 0;
                absorbed += r.status == 0;
                if (r.status < 0 || r.status > 3 || (r.status == 0) != (n == 0) ||
                    (n && (strncmp(r.err, "ltrain: ", 8) != 0 || strchr(r.err, '\n') != r.err + n - 1)))
                    fail_msg("%s, %s: exit status %d: %s", commands[c].name, fault, r.status, r.err);
            }
        }
        print_message("%s: %d refused, %d absorbed\n", commands[c].name, refused, absorbed);
        assert_true(refused > 0 || apart > 1);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(the_nth_call_fails)};
    return cmocka_run_group_tests_name("nth", tests, prepare, e2e_teardown);
}
