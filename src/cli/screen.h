/* A terminal's whole screen, drawn line by line and given back as it was. Private to src/cli. */
#ifndef LTRAIN_CLI_SCREEN_H
#define LTRAIN_CLI_SCREEN_H

#include <stddef.h>
#include <stdio.h>
#include <termios.h>

enum screen_style { SCREEN_PLAIN, SCREEN_TITLE, SCREEN_HEADING, SCREEN_CURVE, SCREEN_BAD };

struct screen {
    int fd, width, height; /* size in characters at the last screen_begin */
    int line;              /* lines drawn since then */
    int utf8, colored;     /* 1: the locale has block characters; 1: the user wants colours */
    int has_mode;          /* 1: `mode` is the terminal's own */
    struct termios mode;
    FILE *frame; /* text of the frame under way; NULL: none */
    char *text;
    size_t bytes;
};

/* Turns to the terminal's second screen, without cursor and echo. fd: the terminal, borrowed. */
void screen_enter(struct screen *s, int fd);
/* Gives the first screen back, with cursor and echo. */
void screen_leave(struct screen *s);
/* Begins a frame in the terminal's present size. */
void screen_begin(struct screen *s);
/* Adds a line of UTF-8 text, as much of it as the width takes; lines below the last one are left out. Control characters are
 * drawn as blanks. */
void screen_add(struct screen *s, enum screen_style style, const char *text);
/* Shows the frame and clears what is below it. */
void screen_end(struct screen *s);
/* Returns the number of lines that a frame has still room for. */
int screen_left(const struct screen *s);

#endif
