/* One parse or one render: its memory, budget, current line, and early end. Private to src/chat.
 *
 * Templates come from anywhere, so everything that they do is limited: bytes of one arena, steps, levels of recursion. An
 * exceeded limit, or an error, ends the task by a jump out of jinja_task_run. Nothing needs to be undone, because all objects of
 * a task lie in its arena. */
#ifndef LTRAIN_CHAT_JINJA_TASK_H
#define LTRAIN_CHAT_JINJA_TASK_H

#include "base/status.h"

#include <setjmp.h>
#include <stddef.h>
#include <stdint.h>

struct jinja_chunk;

struct jinja_task {
    const char *name; /* template's name in messages */
    int line;         /* current line of the template */
    size_t bytes, max_bytes;
    int64_t steps, max_steps;
    int depth;
    struct jinja_chunk *chunks; /* chunks of the arena, the newest first */
    enum status status;
    jmp_buf failed;
};

enum { JINJA_MAX_DEPTH = 1000 }; /* levels of evaluation: half a megabyte of stack, and several times what templates need */

void jinja_task_start(struct jinja_task *task, const char *name, size_t max_bytes, int64_t max_steps);
/* Calls body(task, arg). If the body fails, by jinja_fail or a limit, this call returns the error. */
enum status jinja_task_run(struct jinja_task *task, void (*body)(struct jinja_task *, void *), void *arg);
/* Frees all memory of the task. */
void jinja_task_end(struct jinja_task *task);

/* Takes n zeroed bytes that live as long as the task. */
void *jinja_take(struct jinja_task *task, size_t n);
/* Makes room for `more` objects of `size` bytes behind the `used` ones: returns `at`, or a copy in a larger place, and updates
 * *room. */
void *jinja_grow(struct jinja_task *task, void *at, size_t used, size_t more, size_t size, size_t *room);
char *jinja_copy(struct jinja_task *task, const char *bytes, size_t n);
/* Ends the task with the error "NAME:LINE: ...". */
_Noreturn void jinja_fail(struct jinja_task *task, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Charges n steps to the budget (jinja_step), or the steps for looking at some bytes (jinja_look); an exceeded budget ends the
 * task. */
void jinja_step(struct jinja_task *task, int64_t n);
void jinja_look(struct jinja_task *task, size_t bytes);
/* Enters a level of recursion (jinja_sink) and leaves it (jinja_rise); too deep a level ends the task. */
void jinja_sink(struct jinja_task *task);
void jinja_rise(struct jinja_task *task);

#endif
