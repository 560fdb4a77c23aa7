/* Helpers that the tests of chats share: files of the source tree, templates, renders. */
#ifndef TESTS_CHAT_CHAT_TEST_H
#define TESTS_CHAT_CHAT_TEST_H

#include "chat/chat.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

/* Reads the whole file tests/chat/NAME and appends a 0. */
static inline char *chat_test_read(const char *name, size_t *n)
{
    char path[1200];
    const char *root = getenv("LTRAIN_SOURCE_ROOT");
    snprintf(path, sizeof path, "%.900s/tests/chat/%.200s", root ? root : ".", name);
    FILE *f = fopen(path, "rb");
    if (!f)
        fail_msg("cannot open %s", path);
    fseek(f, 0, SEEK_END);
    *n = (size_t)ftell(f);
    rewind(f);
    char *text = malloc(*n + 1);
    if (!text || fread(text, 1, *n, f) != *n)
        fail_msg("cannot read %s", path);
    fclose(f);
    text[*n] = 0;
    return text;
}

/* Returns the line at *at, without its end, and moves *at behind it; NULL: there is none. */
static inline char *chat_test_line(char **at)
{
    char *line = *at, *end = strchr(line, '\n');
    if (*line == 0)
        return NULL;
    *at = end ? end + 1 : line + strlen(line);
    if (end)
        *end = 0;
    return line;
}

static inline struct chat_template *chat_test_template(const char *source)
{
    struct chat_template *t = NULL;
    if (chat_template_parse(source, strlen(source), "t", &t) != OK)
        fail_msg("%s: %s", source, status_message());
    return t;
}

static inline struct chat_conversation *chat_test_chat(const char *json)
{
    struct chat_conversation *c = NULL;
    if (chat_read(json, strlen(json), "chats.jsonl", 3, &c) != OK)
        fail_msg("%s: %s", json, status_message());
    return c;
}

#endif
