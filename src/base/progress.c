/* Counters of progress, and the thread that shows them. */
#include "base/progress.h"

#include "base/clock.h"
#include "base/prose.h"
#include "base/sys.h"
#include "base/units.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <unistd.h>

#define EVERY_NS 500000000ll

static _Atomic int64_t tokens;
static atomic_int programs;
static _Atomic int64_t fitting;    /* tokens of a length that fits; 0: none is looked for */
static const char *_Atomic sought; /* target of planning's search, in words; NULL: none */
static _Atomic double best;        /* seconds of the fastest step that fits; 0: none */
static _Atomic int64_t to_read, been_read;
static const char *_Atomic purpose = PROGRESS_FILES;

static struct {
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t end;
    int running, ended, fd;
    int stays; /* 1: each message is a line of its own, not rewritten in place */
    int reads; /* 1: files are read, even while their bytes are not known yet */
    int64_t began_ns, after_ns, every_ns;
} line = {.lock = PTHREAD_MUTEX_INITIALIZER};

void progress_program(int64_t of_tokens)
{
    atomic_store_explicit(&tokens, of_tokens, memory_order_relaxed);
    atomic_fetch_add_explicit(&programs, 1, memory_order_relaxed);
}

void progress_planning(const char *what)
{
    atomic_store(&sought, what);
}

void progress_forget(void)
{
    atomic_store(&best, 0);
}

void progress_found(double seconds)
{
    double had = atomic_load(&best);
    while (atomic_load(&sought) && (had == 0 || seconds < had) && !atomic_compare_exchange_weak(&best, &had, seconds))
        ;
}

void progress_fits(int64_t of_tokens)
{
    atomic_store(&fitting, of_tokens);
}

int progress_has_found(void)
{
    return atomic_load(&best) > 0 || atomic_load(&fitting) > 0;
}

/* Formats how much has been read, as "3.1 GiB of 20 GiB". */
static const char *describe_read(char text[80])
{
    char done[32], all[32];
    snprintf(text, 80, "%s of %s", units_format_bytes(atomic_load_explicit(&been_read, memory_order_relaxed), done),
             units_format_bytes(atomic_load_explicit(&to_read, memory_order_relaxed), all));
    return text;
}

void progress_reading(int64_t total_bytes)
{
    atomic_store_explicit(&been_read, 0, memory_order_relaxed);
    atomic_store_explicit(&to_read, total_bytes, memory_order_relaxed);
}

void progress_purpose(const char *text)
{
    atomic_store(&purpose, text);
}

void progress_read(int64_t bytes)
{
    atomic_fetch_add_explicit(&been_read, bytes, memory_order_relaxed);
}

int64_t progress_silence_ns(void)
{
    const char *seconds = getenv("LTRAIN_PROGRESS_AFTER");
    return seconds ? (int64_t)(strtod(seconds, NULL) * 1e9) : PROGRESS_AFTER_NS;
}

/* Describes the fastest step so far and what planning looks for, or nothing. */
static const char *describe_search(char text[80])
{
    const char *what = atomic_load(&sought);
    const double seconds = atomic_load(&best);
    char count[32];
    text[0] = 0;
    if (atomic_load(&fitting) > 0)
        snprintf(text, 80, "%s fit so far, ", units_format_count(atomic_load(&fitting), count));
    else if (what && seconds > 0)
        snprintf(text, 80, "a step of %.3g s so far, looking for %s, ", seconds, what);
    else if (what)
        snprintf(text, 80, "looking for %s, ", what);
    return text;
}

/* Writes the present work into text, without a newline. */
static void describe_work(char text[192])
{
    char count[32], read[80], search[80];
    const int64_t seconds = (clock_ns() - line.began_ns) / 1000000000;
    if (atomic_load_explicit(&to_read, memory_order_relaxed) > 0)
        snprintf(text, 192, "%s: %s, %lld s", atomic_load(&purpose), describe_read(read), (long long)seconds);
    else if (line.reads)
        snprintf(text, 192, "%s: %lld s", atomic_load(&purpose), (long long)seconds);
    else
        snprintf(text, 192, "planning %s tokens: %s%d programs built, %lld s",
                 units_format_count(atomic_load_explicit(&tokens, memory_order_relaxed), count), describe_search(search),
                 atomic_load_explicit(&programs, memory_order_relaxed), (long long)seconds);
}

/* Draws the line. On a terminal it is no wider than the terminal, as a carriage return leads back to the beginning of an
 * unwrapped line only. */
static void draw(void)
{
    char text[192];
    struct winsize size;
    describe_work(text);
    if (line.stays) {
        dprintf(line.fd, "%s\n", text);
        return;
    }
    int width = ioctl(line.fd, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : PROSE_WIDTH;
    dprintf(line.fd, "\r%.*s\033[K", width - 1, text);
}

/* Waits until the time `ns`, or until the display ends; returns 1 if it has ended. The caller holds the lock. */
static int wait_until(int64_t ns)
{
    while (!line.ended && clock_ns() < ns)
        clock_cond_wait(&line.end, &line.lock, ns);
    return line.ended;
}

static void *show(void *arg)
{
    (void)arg;
    pthread_mutex_lock(&line.lock);
    if (!wait_until(line.began_ns + line.after_ns)) {
        do
            draw();
        while (!wait_until(clock_ns() + line.every_ns));
        if (!line.stays)
            dprintf(line.fd, "\r\033[K");
    }
    pthread_mutex_unlock(&line.lock);
    return NULL;
}

/* Starts the thread. */
static void begin(int fd, int stays, int reads, int64_t after_ns, int64_t every_ns)
{
    clock_cond_init(&line.end);
    atomic_store(&programs, 0);
    line.fd = fd;
    line.stays = stays;
    line.reads = reads;
    line.ended = 0;
    line.began_ns = clock_ns();
    line.after_ns = after_ns;
    line.every_ns = every_ns;
    line.running = sys_thread(&line.thread, show, NULL) == 0;
    if (!line.running)
        pthread_cond_destroy(&line.end);
}

void progress_begin(int fd, int64_t after_ns)
{
    if (isatty(fd))
        begin(fd, 0, 0, after_ns, EVERY_NS);
}

void progress_begin_kept(int fd, int64_t after_ns, int64_t every_ns)
{
    if (isatty(fd))
        begin(fd, 0, 0, PROGRESS_AFTER_NS, EVERY_NS);
    else
        begin(fd, 1, 0, after_ns, every_ns);
}

void progress_begin_lines(int fd, int64_t after_ns, int64_t every_ns)
{
    begin(fd, 1, 1, after_ns, every_ns);
}

void progress_end(void)
{
    if (!line.running)
        return;
    pthread_mutex_lock(&line.lock);
    line.ended = 1;
    pthread_cond_signal(&line.end);
    pthread_mutex_unlock(&line.lock);
    pthread_join(line.thread, NULL);
    pthread_cond_destroy(&line.end);
    line.running = 0;
}
