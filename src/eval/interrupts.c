#include "eval/interrupts.h"

#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <unistd.h>

static atomic_int interrupted;
static pthread_t reader; /* thread whose reading an interrupt must end, whichever thread the signal reaches */
static sigjmp_buf out;   /* exit from reading */
static volatile sig_atomic_t reading;

static void on_interrupt(int number)
{
    atomic_store(&interrupted, 1);
    if (!pthread_equal(pthread_self(), reader)) {
        pthread_kill(reader, number);
    } else if (reading) {
        reading = 0;
        siglongjmp(out, 1);
    }
}

void interrupts_catch(void)
{
    struct sigaction a = {.sa_handler = on_interrupt};
    sigemptyset(&a.sa_mask);
    reader = pthread_self();
    sigaction(SIGINT, &a, NULL);
}

const atomic_int *interrupts_flag(void)
{
    return &interrupted;
}

void interrupts_forget(void)
{
    atomic_store(&interrupted, 0);
}

/* Reads standard input; the handler leaves by a jump. EINTR alone would miss an interrupt between the test of the flag and the
 * call, and then wait for a line that the terminal has thrown away. */
static ssize_t read_input(void *cookie, char *to, size_t bytes)
{
    volatile ssize_t n = -1;
    (void)cookie;
    if (sigsetjmp(out, 1) == 0) {
        reading = 1;
        while (!atomic_load(&interrupted) && (n = read(STDIN_FILENO, to, bytes)) < 0 && errno == EINTR) {
        }
    }
    reading = 0;
    if (!atomic_load(&interrupted))
        return n;
    errno = EINTR;
    return -1;
}

FILE *interrupts_open_input(void)
{
    return fopencookie(NULL, "r", (cookie_io_functions_t){.read = read_input});
}
