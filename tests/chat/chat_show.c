/* chat_show TEMPLATE FILE.jsonl [all|assistant|last]: prints conversations as a model reads them, with supervised text in
 * brackets 【】 (in green on a terminal). TEMPLATE is a .jinja file, a Hugging Face directory or the name of a built-in template.
 * It is a tool for inspection, not a test. */
#include "chat/chat.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static enum status open_template(const char *name, struct chat_template **out)
{
    struct stat s;
    if (stat(name, &s) != 0)
        return chat_template_builtin(name, out);
    if (S_ISDIR(s.st_mode))
        return chat_template_load(name, out);
    FILE *f = fopen(name, "rb");
    char *source = malloc((size_t)s.st_size + 1);
    size_t n = f && source ? fread(source, 1, (size_t)s.st_size, f) : 0;
    enum status st = chat_template_parse(source, n, name, out);
    if (f)
        fclose(f);
    free(source);
    return st;
}

static void show(const struct chat_text *text)
{
    const char *open = isatty(1) ? "\033[32m" : "【", *close = isatty(1) ? "\033[0m" : "】";
    size_t at = 0;
    for (size_t i = 0; i < text->n_supervised; i++) {
        const struct chat_range *r = &text->supervised[i];
        printf("%.*s%s%.*s%s", (int)(r->first - at), text->bytes + at, open, (int)(r->end - r->first), text->bytes + r->first,
               close);
        at = r->end;
    }
    printf("%s\n", text->bytes + at);
}

int main(int argc, char **argv)
{
    struct chat_template *t = NULL;
    FILE *f = argc > 2 ? fopen(argv[2], "r") : NULL;
    char *line = NULL;
    size_t room = 0;
    struct chat_options options = {.train = argc < 4                      ? CHAT_TRAIN_ASSISTANT
                                            : strcmp(argv[3], "all") == 0 ? CHAT_TRAIN_ALL
                                                                          : CHAT_TRAIN_LAST};
    if (!f || open_template(argv[1], &t) != OK) {
        fprintf(stderr, "chat_show: %s\n", f ? status_message() : "usage: chat_show TEMPLATE FILE.jsonl [all|assistant|last]");
        return 2;
    }
    for (int64_t number = 1; getline(&line, &room, f) > 0; number++) {
        struct chat_conversation *c = NULL;
        struct chat_text text;
        printf("---- %lld\n", (long long)number);
        if (chat_read(line, strlen(line), argv[2], number, &c) != OK || chat_render(t, c, &options, &text) != OK) {
            printf("%s\n", status_message());
        } else {
            show(&text);
            chat_text_destroy(&text);
        }
        chat_destroy(c);
    }
    free(line);
    fclose(f);
    chat_template_destroy(t);
    return 0;
}
