/* A training run by the library, with the options of `ltrain train`; it prints each step's loss.
 *
 *     cc train.c $(pkg-config --cflags --libs ltrain) -o train
 *     ./train --config book.yaml --model DIR
 *     mpiexec -n 4 ./train --config book.yaml --model DIR */
#include <ltrain.h>
#include <stdio.h>

static int print_loss(void *session, const struct ltrain_metrics *m)
{
    if (ltrain_get(session, LTRAIN_RANK) == 0)
        printf("step %lld of %lld: loss %.17g, %.3g s\n", (long long)m->step, (long long)m->steps, m->loss, m->seconds);
    return 0;
}

int main(int argc, char **argv)
{
    ltrain *s = NULL;
    int status = ltrain_open_options(argc - 1, (const char *const *)argv + 1, 0, &s);
    if (status == LTRAIN_OK)
        status = ltrain_train(s, ltrain_get(s, LTRAIN_STEPS), NULL, print_loss, s);
    if (status == LTRAIN_OK)
        status = ltrain_finish(s);
    if (status != LTRAIN_OK)
        fprintf(stderr, "train: %s\n", ltrain_error());
    else if (ltrain_get(s, LTRAIN_RANK) == 0)
        printf("model: %s/hf\n", ltrain_directory(s));
    ltrain_close(s);
    return status != LTRAIN_OK;
}
