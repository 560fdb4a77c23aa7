#include "cli/screen.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#define ENTER "\x1b[?1049h\x1b[?25l" /* xterm's second screen; the cursor hidden */
#define LEAVE "\x1b[0m\x1b[?25h\x1b[?1049l"

static void put(int fd, const char *text, size_t bytes)
{
    while (bytes > 0) {
        const ssize_t n = write(fd, text, bytes);
        if (n < 0 && errno == EAGAIN) {
            poll(&(struct pollfd){.fd = fd, .events = POLLOUT}, 1, -1);
            continue;
        }
        if (n < 0 && errno != EINTR)
            return; /* the terminal is gone */
        text += n > 0 ? n : 0;
        bytes -= n > 0 ? (size_t)n : 0;
    }
}

/* Tells whether the environment's locale writes UTF-8. */
static int writes_utf8(void)
{
    static const char *const names[] = {"LC_ALL", "LC_CTYPE", "LANG"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const char *value = getenv(names[i]);
        if (value && value[0])
            return strcasestr(value, "utf-8") || strcasestr(value, "utf8");
    }
    return 0;
}

void screen_enter(struct screen *s, int fd)
{
    const char *no_color = getenv("NO_COLOR");
    *s = (struct screen){.fd = fd, .utf8 = writes_utf8(), .colored = !no_color || !no_color[0]};
    s->has_mode = tcgetattr(fd, &s->mode) == 0;
    if (s->has_mode) {
        struct termios quiet = s->mode;
        quiet.c_lflag &= ~(tcflag_t)(ECHO | ICANON);
        tcsetattr(fd, TCSANOW, &quiet);
    }
    put(fd, ENTER, sizeof ENTER - 1);
}

void screen_leave(struct screen *s)
{
    put(s->fd, LEAVE, sizeof LEAVE - 1);
    if (s->has_mode)
        tcsetattr(s->fd, TCSAFLUSH, &s->mode); /* keys that were pressed meanwhile are not for the shell */
}

void screen_begin(struct screen *s)
{
    struct winsize size;
    const int known = ioctl(s->fd, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 && size.ws_row > 0;
    s->width = known ? size.ws_col : 80;
    s->height = known ? size.ws_row : 24;
    s->line = 0;
    s->frame = open_memstream(&s->text, &s->bytes);
}

int screen_left(const struct screen *s)
{
    return s->height - s->line;
}

static const char *code_of(const struct screen *s, enum screen_style style)
{
    static const char *const codes[][2] = {[SCREEN_PLAIN] = {"", ""},
                                           [SCREEN_TITLE] = {"\x1b[7m", "\x1b[7m"},
                                           [SCREEN_HEADING] = {"\x1b[1m", "\x1b[1m"},
                                           [SCREEN_CURVE] = {"", "\x1b[36m"},
                                           [SCREEN_BAD] = {"\x1b[1m", "\x1b[31m"}};
    return codes[style][s->colored];
}

void screen_add(struct screen *s, enum screen_style style, const char *text)
{
    int column = 0;
    if (!s->frame || screen_left(s) <= 0)
        return;
    fprintf(s->frame, "\x1b[%d;1H%s", ++s->line, code_of(s, style));
    for (const unsigned char *c = (const unsigned char *)text; *c; c++) {
        column += (*c & 0xC0) != 0x80;
        if (column > s->width)
            break;
        fputc(*c < ' ' || *c == 0x7f ? ' ' : *c, s->frame);
    }
    for (; style == SCREEN_TITLE && column < s->width; column++)
        fputc(' ', s->frame);
    fputs(column < s->width ? "\x1b[0m\x1b[K" : "\x1b[0m", s->frame);
}

void screen_end(struct screen *s)
{
    if (!s->frame)
        return;
    if (screen_left(s) > 0)
        fprintf(s->frame, "\x1b[%d;1H\x1b[J", s->line + 1);
    if (fclose(s->frame) == 0)
        put(s->fd, s->text, s->bytes);
    free(s->text);
    s->frame = NULL;
    s->text = NULL;
}
