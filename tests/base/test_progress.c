/* Tests the progress line of planning: on a terminal it is no wider than the terminal and disappears at the end; elsewhere lines
 * stay. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/progress.h"

#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <termios.h>
#include <unistd.h>

#define NEVER_NS 3600000000000ll

/* Opens a terminal with that number of columns and returns the program's side; *out: the user's side. */
static int open_terminal(int columns, int *out)
{
    struct winsize size = {.ws_col = (unsigned short)columns, .ws_row = 24};
    struct termios raw;
    *out = posix_openpt(O_RDWR | O_NOCTTY);
    assert_true(*out >= 0 && grantpt(*out) == 0 && unlockpt(*out) == 0);
    int fd = open(ptsname(*out), O_RDWR | O_NOCTTY);
    assert_true(fd >= 0 && ioctl(fd, TIOCSWINSZ, &size) == 0 && tcgetattr(fd, &raw) == 0);
    cfmakeraw(&raw);
    assert_int_equal(tcsetattr(fd, TCSANOW, &raw), 0);
    return fd;
}

/* Reads until the text holds `part`. */
static void read_until(int fd, const char *part, char *text, size_t size)
{
    size_t n = strlen(text);
    while (!strstr(text, part)) {
        ssize_t got = read(fd, text + n, size - n - 1);
        assert_true(got > 0);
        text[n += (size_t)got] = 0;
    }
}

static void a_line_that_goes(void **state)
{
    (void)state;
    char text[4096] = "";
    int seen, fd = open_terminal(80, &seen);
    progress_begin(fd, 0);
    progress_program(1024);
    progress_program(430080);
    read_until(seen, "\rplanning 430,080 tokens: 2 programs built, ", text, sizeof text);
    progress_end();
    assert_int_equal(write(fd, "!", 1), 1);
    read_until(seen, "!", text, sizeof text);
    assert_string_equal(text + strlen(text) - 5, "\r\033[K!"); /* erased, with nothing after it */
    assert_null(strchr(text, '\n'));
    close(fd);
    close(seen);
}

static void no_wider_than_the_terminal(void **state)
{
    (void)state;
    char text[4096] = "";
    int seen, fd = open_terminal(20, &seen);
    progress_program(430080);
    progress_begin(fd, 0);
    read_until(seen, "\rplanning 430,080 to\033[K", text, sizeof text);
    progress_end();
    close(fd);
    close(seen);
}

static void nothing(void **state)
{
    (void)state;
    char text[8];
    int seen, fd = open_terminal(80, &seen), ends[2];
    progress_end();
    progress_begin(fd, NEVER_NS); /* the work ends before the line is due */
    progress_program(1024);
    progress_end();
    assert_int_equal(write(fd, "!", 1), 1);
    assert_int_equal(read(seen, text, sizeof text), 1);
    close(fd);
    close(seen);
    assert_int_equal(pipe(ends), 0);
    progress_begin(ends[1], 0);
    progress_program(1024);
    progress_end();
    close(ends[1]);
    assert_int_equal(read(ends[0], text, sizeof text), 0);
    close(ends[0]);
}

/* On a pipe, lines stay, and the first line comes later than on a terminal. */
static void lines_that_stay(void **state)
{
    (void)state;
    char text[4096] = "";
    int seen, fd = open_terminal(80, &seen), ends[2];
    assert_int_equal(pipe(ends), 0);
    progress_program(1024);
    progress_begin_kept(ends[1], 0, 1000000);
    read_until(ends[0], "planning 1,024 tokens: 0 programs built, 0 s\nplanning 1,024 tokens: 0 programs built, ", text,
               sizeof text);
    progress_end();
    assert_null(strchr(text, '\r'));
    close(ends[0]);
    close(ends[1]);
    assert_int_equal(pipe(ends), 0);
    progress_begin_kept(ends[1], NEVER_NS, 0); /* the work ends before a line is due */
    progress_end();
    close(ends[1]);
    assert_int_equal(read(ends[0], text, sizeof text), 0);
    close(ends[0]);
    text[0] = 0;
    progress_begin_kept(fd, NEVER_NS, NEVER_NS);
    read_until(seen, "\rplanning 1,024 tokens: 0 programs built, ", text, sizeof text);
    progress_end();
    close(fd);
    close(seen);
}

static void reading(void **state)
{
    (void)state;
    char text[4096] = "";
    int seen, fd = open_terminal(80, &seen), ends[2];
    progress_reading(20ll << 30);
    progress_read(3ll << 30);
    progress_begin(fd, 0);
    read_until(seen, "\rreading files, for their checksums: 3.0 GiB of 20 GiB, ", text, sizeof text);
    progress_reading(0);
    progress_program(1024);
    read_until(seen, "\rplanning 1,024 tokens: 1 programs built, ", text, sizeof text);
    progress_end();
    close(fd);
    close(seen);
    assert_int_equal(pipe(ends), 0); /* lines that stay, of few bytes and of none, too */
    text[0] = 0;
    progress_reading(500);
    progress_read(2);
    progress_begin_lines(ends[1], 0, NEVER_NS);
    read_until(ends[0], "reading files, for their checksums: 2 B of 500 B, 0 s\n", text, sizeof text);
    progress_end();
    progress_reading(0);
    progress_begin_lines(ends[1], 0, NEVER_NS);
    read_until(ends[0], "reading files, for their checksums: 0 s\n", text, sizeof text);
    progress_end();
    assert_null(strchr(text, '\r'));
    close(ends[0]);
    close(ends[1]);
}

/* The line says what was found and what is looked for. Steps found while nothing is looked for, by advice, do not count. */
static void a_search(void **state)
{
    (void)state;
    char text[4096] = "";
    int seen, fd = open_terminal(120, &seen);
    progress_begin(fd, 0);
    progress_program(1024);
    progress_found(1);
    assert_false(progress_has_found());
    progress_planning("tiles");
    read_until(seen, "planning 1,024 tokens: looking for tiles, 1 programs built, ", text, sizeof text);
    progress_found(38.1);
    progress_found(40);
    assert_true(progress_has_found());
    read_until(seen, "planning 1,024 tokens: a step of 38.1 s so far, looking for tiles, 1 programs built, ", text, sizeof text);
    progress_forget();
    assert_false(progress_has_found());
    progress_fits(2048);
    assert_true(progress_has_found());
    read_until(seen, "planning 1,024 tokens: 2,048 fit so far, 1 programs built, ", text, sizeof text);
    progress_fits(0);
    progress_planning(NULL);
    progress_end();
    close(fd);
    close(seen);
}

/* SIGINT ends planning with the best plan so far, and a sentence that says so. */
static void a_signal(void **state)
{
    (void)state;
    char text[1 << 16] = "";
    int status, seen, fd = open_terminal(200, &seen);
    pid_t child = fork();
    if (child == 0) {
        dup2(open("/dev/null", O_WRONLY), STDOUT_FILENO);
        dup2(fd, STDERR_FILENO);
        execl(getenv("LTRAIN"), "ltrain", "plan", "--model", "8b", "--seq-len", "1m", "--machine", "64xa100-80", "--effort",
              "best", (char *)NULL);
        _exit(99);
    }
    close(fd);
    read_until(seen, "s so far, looking for", text, sizeof text);
    assert_int_equal(kill(child, SIGINT), 0);
    read_until(seen, "SIGINT ended planning early: this is the best plan found until then", text, sizeof text);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    close(seen);
}

/* Planning whose output is kept says after two seconds that it goes on, long before the plan of 2^30 tokens on 1,024 devices. */
static void long_planning(void **state)
{
    (void)state;
    char text[4096] = "";
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    pid_t child = fork();
    if (child == 0) {
        dup2(open("/dev/null", O_WRONLY), STDOUT_FILENO);
        dup2(ends[1], STDERR_FILENO);
        unsetenv("LTRAIN_PROGRESS_AFTER");
        execl(getenv("LTRAIN"), "ltrain", "plan", "--model", "8b", "--seq-len", "1g", "--machine", "1024xh100", (char *)NULL);
        _exit(99);
    }
    close(ends[1]);
    read_until(ends[0], "planning 1,073,741,824 tokens: looking for ", text, sizeof text);
    assert_int_equal(kill(child, SIGKILL), 0);
    assert_int_equal(waitpid(child, NULL, 0), child);
    close(ends[0]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(a_search),         cmocka_unit_test(a_signal),
                                       cmocka_unit_test(a_line_that_goes), cmocka_unit_test(no_wider_than_the_terminal),
                                       cmocka_unit_test(nothing),          cmocka_unit_test(lines_that_stay),
                                       cmocka_unit_test(reading),          cmocka_unit_test(long_planning)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
