/* Memory, budget and failure of one parse or render. */
#include "chat/jinja/task.h"

#include "base/sys.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct jinja_chunk {
    struct jinja_chunk *older;
    size_t used, room;
    _Alignas(16) char bytes[];
};

enum { CHUNK = 64 << 10, BYTES_PER_STEP = 64 };

void jinja_task_start(struct jinja_task *task, const char *name, size_t max_bytes, int64_t max_steps)
{
    memset(task, 0, sizeof *task);
    task->name = name;
    task->max_bytes = max_bytes;
    task->max_steps = max_steps;
}

enum status jinja_task_run(struct jinja_task *task, void (*body)(struct jinja_task *, void *), void *arg)
{
    task->status = OK;
    task->depth = 0;
    if (setjmp(task->failed) == 0)
        body(task, arg);
    return task->status;
}

void jinja_task_end(struct jinja_task *task)
{
    while (task->chunks) {
        struct jinja_chunk *older = task->chunks->older;
        free(task->chunks);
        task->chunks = older;
    }
}

static _Noreturn void end_early(struct jinja_task *task, enum status status)
{
    task->status = status;
    longjmp(task->failed, 1);
}

_Noreturn void jinja_fail(struct jinja_task *task, const char *format, ...)
{
    char why[700];
    va_list args;
    va_start(args, format);
    vsnprintf(why, sizeof why, format, args);
    va_end(args);
    end_early(task, status_fail(ERR_INVALID, "%s:%d: %s", task->name, task->line, why));
}

void *jinja_take(struct jinja_task *task, size_t n)
{
    n = (n + 15) & ~(size_t)15;
    struct jinja_chunk *c = task->chunks;
    if (!c || n > c->room - c->used) {
        size_t room = n > CHUNK / 4 ? n : CHUNK;
        if (n > task->max_bytes || room > task->max_bytes - task->bytes)
            jinja_fail(task, "the template takes more than %zu MiB of memory", task->max_bytes >> 20);
        c = sys_malloc(sizeof *c + room);
        if (!c)
            end_early(task, status_fail(ERR_NOMEM, "no memory for rendering a chat: %zu bytes", room));
        *c = (struct jinja_chunk){.older = task->chunks, .room = room};
        task->chunks = c;
        task->bytes += room;
    }
    void *at = c->bytes + c->used;
    c->used += n;
    jinja_look(task, n);
    return memset(at, 0, n);
}

void *jinja_grow(struct jinja_task *task, void *at, size_t used, size_t more, size_t size, size_t *room)
{
    if (more <= *room - used)
        return at;
    if (more > task->max_bytes / size || used > task->max_bytes / size)
        jinja_fail(task, "the template takes more than %zu MiB of memory", task->max_bytes >> 20);
    size_t next = *room < 8 ? 8 : *room * 2;
    next = next < used + more ? used + more : next;
    void *larger = jinja_take(task, next * size);
    if (used > 0)
        memcpy(larger, at, used * size);
    *room = next;
    return larger;
}

char *jinja_copy(struct jinja_task *task, const char *bytes, size_t n)
{
    char *copy = jinja_take(task, n + 1);
    if (n > 0)
        memcpy(copy, bytes, n);
    return copy;
}

void jinja_step(struct jinja_task *task, int64_t n)
{
    task->steps += n;
    if (task->steps > task->max_steps)
        jinja_fail(task, "the template takes more than %lld steps", (long long)task->max_steps);
}

void jinja_look(struct jinja_task *task, size_t bytes)
{
    jinja_step(task, (int64_t)(bytes / BYTES_PER_STEP));
}

void jinja_sink(struct jinja_task *task)
{
    if (++task->depth > JINJA_MAX_DEPTH)
        jinja_fail(task, "the template nests deeper than %d levels", JINJA_MAX_DEPTH);
}

void jinja_rise(struct jinja_task *task)
{
    task->depth--;
}
