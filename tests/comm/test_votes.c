/* Tests that one call takes the votes of a thousand ranks, all of which have arrived. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "comm/state.h"

#include <stdlib.h>
#include <string.h>

enum { RANKS = 1024 };

static struct {
    struct notice *into; /* destination of the next notice, once a receive is posted */
    int waiting, sent;   /* notices not taken yet; notices sent by this rank */
    int bad;             /* 1: the last notice reports a failure */
} fake;

enum status wire_create(const struct launch *launch, double timeout_seconds, struct wire **out)
{
    (void)launch, (void)timeout_seconds, (void)out;
    return OK;
}

void wire_destroy(struct wire *w, double finalize_seconds)
{
    (void)w, (void)finalize_seconds;
}

enum status wire_reserve(struct wire *w, enum channel channel, int slots)
{
    (void)w, (void)channel, (void)slots;
    return OK;
}

enum status wire_send(struct wire *w, enum channel channel, int slot, int to, const void *data, int bytes)
{
    (void)w, (void)channel, (void)slot, (void)to, (void)data, (void)bytes;
    fake.sent++;
    return OK;
}

enum status wire_recv(struct wire *w, enum channel channel, int slot, int from, void *data, int bytes)
{
    (void)w, (void)channel, (void)slot, (void)from, (void)bytes;
    fake.into = data;
    return OK;
}

int wire_in_use(const struct wire *w, enum channel channel, int slot)
{
    (void)w, (void)channel, (void)slot;
    return 0;
}

const char *wire_starting(void)
{
    return "";
}

unsigned wire_calls(void)
{
    return 0;
}

/* Delivers the next notice, from rank fake.waiting, whose vote has done fake.waiting % 7 sections. */
enum status wire_test(struct wire *w, enum channel channel, const struct wire_event **events, int *n)
{
    static const struct wire_event has_come = {.slot = 0, .bytes = sizeof(struct notice)};
    (void)w, (void)channel;
    *n = 0;
    if (!fake.into || fake.waiting == 0)
        return OK;
    *fake.into = (struct notice){.origin = fake.waiting, .vote = {.sections = fake.waiting % 7}};
    if (fake.waiting == 1 && fake.bad) {
        fake.into->status = ERR_PEER;
        strcpy(fake.into->text, "rank 1 has failed");
    }
    fake.into = NULL;
    fake.waiting--;
    *events = &has_come;
    *n = 1;
    return OK;
}

static void begin(struct comm *c)
{
    memset(c, 0, sizeof *c);
    memset(&fake, 0, sizeof fake);
    c->launch.size = RANKS;
    c->wire = (struct wire *)(void *)&fake;
    c->timeout_ns = INT64_MAX / 4;
    c->votes.heard = calloc(RANKS, 1);
    assert_non_null(c->votes.heard);
    fake.waiting = RANKS - 1;
    assert_int_equal(failure_listen(c), OK);
}

static void one_look_takes_all(void **state)
{
    static struct comm c;
    (void)state;
    begin(&c);
    assert_int_equal(comm_cut_look(&c), OK);
    assert_int_equal(fake.waiting, 0);
    assert_int_equal(fake.sent, RANKS - 1);
    assert_true(atomic_load(&c.votes.decided));
    assert_int_equal(c.votes.most.sections, 6);
    assert_false(comm_is_cut(&c)); /* other ranks are six sections ahead */
    assert_int_equal(atomic_load(comm_cut_flag(&c)), 0);
    for (int i = 0, cut; i < 8; i++) {
        assert_int_equal(comm_section_end(&c, &cut), OK);
        assert_int_equal(cut, i >= 6);
        assert_int_equal(atomic_load(comm_cut_flag(&c)), i >= 5); /* the next section is cut, from its beginning */
    }
    free(c.votes.heard);
}

static void a_failure_among_them_is_one(void **state)
{
    static struct comm c;
    (void)state;
    begin(&c);
    fake.bad = 1;
    assert_int_equal(comm_cut_look(&c), ERR_PEER);
    assert_string_equal(status_message(), "rank 1 has failed");
    assert_int_equal(fake.waiting, 0);
    free(c.votes.heard);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(one_look_takes_all), cmocka_unit_test(a_failure_among_them_is_one)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
