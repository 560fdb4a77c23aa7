#include "eval/task_gather.h"

#include "base/grow.h"
#include "base/num.h"
#include "base/sys.h"

#include <stdlib.h>
#include <string.h>

/* Message with an answer; its text is sent afterwards, once the longest length is known. */
struct message {
    struct task_answer answer; /* text: an address in another process */
    int64_t text_bytes;        /* size with the terminator; 0: there is no answer */
};

/* Adds an answer; r owns the text from here on. */
static enum status add(struct task_results *r, const struct message *m, char *text)
{
    struct task_cell *c = &r->cell[m->answer.cell];
    if (r->n_answers == r->answers_room) {
        struct task_answer *more = grow(r->answer, &r->answers_room, sizeof *more, 64, "answers");
        if (!more) {
            free(text);
            return ERR_NOMEM;
        }
        r->answer = more;
    }
    struct task_answer *a = &r->answer[r->n_answers++];
    *a = m->answer;
    a->text = text;
    c->score += a->score;
    c->answers++;
    return OK;
}

static enum status add_all(const struct comm *c, const struct message *all, const char *texts, int64_t most,
                           struct task_answer *own, struct task_results *r)
{
    for (int k = 0; k < comm_size(c); k++) {
        const int is_own = k == comm_rank(c);
        if (all[k].text_bytes == 0)
            continue;
        char *text = is_own ? own->text : strdup(texts + k * most);
        if (!text)
            return status_fail(ERR_NOMEM, "out of memory: an answer");
        if (is_own)
            own->text = NULL;
        TRY(add(r, &all[k], text));
    }
    return OK;
}

enum status task_gather(struct comm *c, struct task_answer *own, struct task_results *r)
{
    const size_t n = (size_t)comm_size(c);
    struct message mine = {.text_bytes = 0}, *all = sys_calloc(n, sizeof *all);
    char *text = NULL, *texts = NULL;
    int64_t most = 0;
    enum status st = comm_agree(c, all ? OK : status_fail(ERR_NOMEM, "out of memory: answers"));
    if (own)
        mine = (struct message){.answer = *own, .text_bytes = (int64_t)strlen(own->text) + 1};
    if (st == OK)
        st = comm_gather(c, &mine, sizeof mine, all);
    for (size_t k = 0; k < n && st == OK; k++)
        most = max_i64(most, all[k].text_bytes);
    if (st == OK && most > 0) {
        text = sys_calloc(1, (size_t)most);
        texts = sys_calloc(n, (size_t)most);
        st = comm_agree(c, text && texts ? OK : status_fail(ERR_NOMEM, "out of memory: answers"));
    }
    if (st == OK && most > 0) {
        memcpy(text, own ? own->text : "", own ? (size_t)mine.text_bytes : 1);
        st = comm_gather(c, text, most, texts);
    }
    if (st == OK)
        st = comm_agree(c, add_all(c, all, texts, most, own, r));
    free(text);
    free(texts);
    free(all);
    return st;
}
