/* Finding the kinds of files, and refusing files of formats that are not read. */
#include "data/kinds.h"

#include "base/num.h"
#include "base/sys.h"
#include "data/file.h"
#include "data/input.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* First bytes by which files of other formats are recognised, and the command that converts such a file. */
static const struct foreign {
    const char *magic;
    size_t n;
    /* fine: ending of names of files that may begin so; only: ending of names that the row is limited to, NULL: any name */
    const char *fine, *only;
    const char *what, *remedy; /* remedy: printf format of two strings, the path and the path without `end` */
    const char *end;           /* ending that the new name drops, so that files of rows stay so named; NULL: none */
} foreign[] = {
    {"PAR1", 4, ".parquet", NULL, "a Parquet file and not named .parquet", "mv '%s' '%s.parquet'"},
    {"ARROW1", 6, NULL, NULL, "an Arrow file",
     "python3 -c \"import pandas; pandas.read_feather('%s').to_json('%s.jsonl', orient='records', lines=True)\""},
    {"\377\377\377\377", 4, NULL, ".arrow", "an Arrow stream",
     "python3 -c \"import datasets; datasets.Dataset.from_file('%s').to_json('%s.jsonl')\""},
    {"\223NUMPY", 6, NULL, NULL, "a NumPy array",
     "python3 -c \"import numpy; numpy.load('%s').astype('uint32').tofile('%s.bin')\", and --token-type u32"},
    {"\037\213", 2, ".gz", NULL, "compressed by gzip and not named .gz", "mv '%s' '%s.gz'"},
    {"\050\265\057\375", 4, ".zst", NULL, "compressed by zstd and not named .zst", "mv '%s' '%s.zst'"},
    {"\3757zXZ\0", 6, NULL, NULL, "compressed by xz", "xz -dc '%s' | zstd -o '%s.zst'", ".xz"},
    {"BZh", 3, NULL, ".bz2", "compressed by bzip2", "bzip2 -dc '%s' | zstd -o '%s.zst'", ".bz2"},
    {"\004\"M\030", 4, NULL, NULL, "compressed by lz4", "lz4 -dc '%s' | zstd -o '%s.zst'", ".lz4"},
    {"%PDF-", 5, NULL, ".pdf", "a PDF", "pdftotext '%s' '%s.txt'"},
    {"PK\003\004", 4, NULL, NULL, "a ZIP archive", "unzip '%s' -d '%s.d'"},
};

static int ends_with(const char *path, const char *suffix)
{
    size_t n = strlen(path), m = strlen(suffix);
    return n > m && strcasecmp(path + n - m, suffix) == 0;
}

/* Refuses a file of another format by its first bytes; *is_foreign becomes 1 then. */
static enum status refuse_foreign(const char *path, const struct id_file *ids, int *is_foreign)
{
    enum { MAGIC = 6 };
    int fd;
    int64_t bytes;
    char head[MAGIC] = {0};
    if (ids->format != IDS_NONE) /* ids may be any bytes */
        return OK;
    TRY(file_open(path, &fd, &bytes));
    enum status st = file_read(fd, path, head, (size_t)min_i64(MAGIC, bytes), 0);
    sys_close(fd);
    for (size_t i = 0; st == OK && i < sizeof foreign / sizeof *foreign; i++) {
        const struct foreign *f = &foreign[i];
        if (memcmp(head, f->magic, f->n) != 0 || (f->fine && ends_with(path, f->fine)) || (f->only && !ends_with(path, f->only)))
            continue;
        char remedy[9000], to[4096];
        snprintf(to, sizeof to, "%.*s", (int)(strlen(path) - (f->end && ends_with(path, f->end) ? strlen(f->end) : 0)), path);
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
        snprintf(remedy, sizeof remedy, f->remedy, path, to);
#pragma GCC diagnostic pop
        *is_foreign = 1;
        st = status_fail(ERR_INVALID, "%s is %s, which is not read as it is: %s", path, f->what, remedy);
    }
    return st;
}

/* ---- rows in other clothes ---- */

/* Tells whether the text contains, in quotes, a key that rows have. */
static int has_key(const char *text)
{
    static const char *const keys[] = {"\"messages\"", "\"conversations\"", "\"instruction\"",
                                       "\"prompt\"",   "\"input_ids\"",     "\"text\""};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        if (strstr(text, keys[i]))
            return 1;
    return 0;
}

/* Reads a file's first bytes, with zeros behind them if it is shorter. */
static enum status read_head(const char *path, char *head, size_t n)
{
    int fd;
    int64_t bytes;
    memset(head, 0, n);
    TRY(file_open(path, &fd, &bytes));
    enum status st = file_read(fd, path, head, (size_t)min_i64((int64_t)n, bytes), 0);
    sys_close(fd);
    return st;
}

/* Refuses UTF-16, whose bytes would be read as broken UTF-8. */
static enum status refuse_utf_16(const char *path)
{
    char head[2];
    TRY(read_head(path, head, sizeof head));
    if (memcmp(head, "\377\376", 2) != 0 && memcmp(head, "\376\377", 2) != 0)
        return OK;
    const char *name = strrchr(path, '/'), *end = strrchr(name ? name : path, '.');
    /* the new name keeps its ending, so that a file of rows is read as one */
    const int stem = (int)(end ? (size_t)(end - path) : strlen(path));
    return status_fail(ERR_INVALID, "%s is in UTF-16, and texts are read as UTF-8: iconv -f UTF-16 -t UTF-8 '%s' >'%.*s-utf8%s'",
                       path, path, stem, path, end ? end : "");
}

/* Refuses programs, pictures and databases, recognised by a zero byte, that were found in a directory. A file that the user names
 * is not checked. */
static enum status refuse_binary(const char *path, int *is_foreign)
{
    char head[4096];
    int fd;
    int64_t bytes;
    TRY(file_open(path, &fd, &bytes));
    const size_t n = (size_t)min_i64(sizeof head, bytes);
    enum status st = file_read(fd, path, head, n, 0);
    sys_close(fd);
    if (st != OK || !memchr(head, 0, n))
        return st;
    *is_foreign = 1;
    return status_fail(ERR_INVALID, "%s is no text: it has zero bytes", path);
}

/* Reads a file's first bytes, decompressed, and puts a 0 behind them. */
static enum status read_beginning(const char *path, char *head, size_t n)
{
    struct input *in;
    size_t got = 0;
    TRY(input_open(path, NULL, &in));
    enum status st = input_read(in, (uint8_t *)head, n - 1, &got);
    head[got] = 0;
    input_close(in);
    return st;
}

/* Tells whether a text begins like a row: its first line is an object, or the beginning of one if the line was not read whole. */
static int begins_as_row(const char *first)
{
    const size_t n = strcspn(first, "\r\n");
    size_t end = n;
    while (end > 0 && (first[end - 1] == ' ' || first[end - 1] == '\t'))
        end--;
    return first[0] == '{' && n > 1 && (first[n] == 0 || first[end - 1] == '}');
}

/* Refuses a table that the user names; one that is found in a directory is read as text. */
static enum status refuse_table(const char *path, int found)
{
    const size_t n = input_name(path);
    if (found || n <= 4 || strncasecmp(path + n - 4, ".csv", 4) != 0)
        return OK;
    return status_fail(
        ERR_INVALID,
        "%s is a table, and rows are read of files named .jsonl: python3 -c \"import pandas; "
        "pandas.read_csv('%s').to_json('%.*s.jsonl', orient='records', lines=True)\"; as a mere text it is read if "
        "its name ends in .txt",
        path, path, (int)n - 4, path);
}

/* Refuses a file that the user names if its text begins like a row or a list of rows, with a key that rows have. A file found in
 * a directory is read as text instead, and *rows is set. */
static enum status look_at_json(const char *path, int found, int *rows)
{
    char head[4097] = "";
    const size_t n = input_name(path);
    const int json = n > 5 && strncasecmp(path + n - 5, ".json", 5) == 0;
    if (lines_are_in(path))
        return OK;
    TRY(read_beginning(path, head, sizeof head));
    const char *first = head + strspn(head, "\357\273\277 \t\r\n"),
               *list = *first == '[' ? first + 1 + strspn(first + 1, " \t\r\n") : NULL;
    if (!has_key(head) || (list ? *list != '{' : !begins_as_row(first)))
        return OK;
    *rows = found;
    if (found)
        return OK;
    const int stem = json ? (int)n - 5 : (int)n;
    return list
               ? status_fail(ERR_INVALID,
                             "%s is a JSON list; rows are read one a line, of files named .jsonl: jq -c '.[]' '%s' >'%.*s.jsonl'",
                             path, path, stem, path)
               : status_fail(ERR_INVALID, "%s holds rows, which are read of files named .jsonl: mv '%s' '%.*s.jsonl%s'", path,
                             path, stem, path, path + n);
}

int kinds_are_text(const struct file_kind *k)
{
    return k->lines == LINES_TEXT || (k->lines == LINES_NONE && k->ids.format == IDS_NONE);
}

int kinds_are_ids(const struct file_kind *k)
{
    return k->lines == LINES_IDS || k->ids.format == IDS_MEGATRON || k->ids.format == IDS_LLMC || k->ids.format == IDS_PLAIN;
}

/* Finds a file's kind. *is_foreign: 1 if the file is refused because it is no text; a directory may have more such files. */
static enum status find_kind(const char *path, int found, const struct kinds_config *config, struct file_kind *k, int *is_foreign)
{
    const size_t n = input_name(path);
    if (input_is_compressed(path) && n > 4 && (memcmp(path + n - 4, ".bin", 4) == 0 || memcmp(path + n - 4, ".idx", 4) == 0))
        return status_fail(ERR_INVALID, "%s: files of token ids are not read compressed: decompress it", path);
    *is_foreign = n > 4 && memcmp(path + n - 4, ".tar", 4) == 0;
    if (*is_foreign)
        return status_fail(ERR_INVALID, "%s is an archive of files, which is not read as it is: unpack it", path);
    if (config->has_tokenizer && input_is_compressed(path) && n > 5 && strncasecmp(path + n - 5, ".json", 5) == 0)
        return status_fail(ERR_INVALID, "%s: rows are read of files named .jsonl%s: rename it if it has a row a line", path,
                           path + n);
    TRY(id_file_look(path, config->token_bytes, &k->ids));
    TRY(refuse_foreign(path, &k->ids, is_foreign));
    if (config->has_tokenizer && k->ids.format == IDS_NONE)
        TRY(refuse_utf_16(path));
    if (config->has_tokenizer && k->ids.format == IDS_NONE && found && !input_is_compressed(path))
        TRY(refuse_binary(path, is_foreign));
    if (config->has_tokenizer && k->ids.format == IDS_NONE)
        TRY(refuse_table(path, found));
    if (config->has_tokenizer && k->ids.format == IDS_NONE)
        TRY(look_at_json(path, found, &k->json_rows));
    TRY(lines_look(path, config->column, &k->lines));
    if (!config->has_tokenizer && k->lines != LINES_IDS && input_is_parquet(path))
        return status_fail(
            ERR_INVALID,
            "%s has texts or chats, of which --tokenizer DIR makes tokens; where bytes are trained: python3 -c \"import "
            "pandas; pandas.read_parquet('%s').to_json('%s.jsonl', orient='records', lines=True)\"",
            path, path, path);
    if (!config->has_tokenizer && k->lines != LINES_IDS)
        k->lines = LINES_NONE;
    return OK;
}

/* Refuses ids beside texts without a tokenizer: bytes are no ids of the vocabulary of those files. */
static enum status check_together(const struct documents *d, const struct file_kind *k)
{
    int64_t ids = -1, text = -1;
    for (int64_t i = 0; i < documents_count(d); i++)
        if (k[i].ids.format != IDS_MEGATRON_INDEX)
            *(kinds_are_ids(&k[i]) ? &ids : &text) = i;
    if (ids < 0 || text < 0)
        return OK;
    return status_fail(
        ERR_INVALID,
        "%s holds token ids and %s a text, which would be read as bytes: --tokenizer DIR names the tokenizer of both",
        documents_path(d, ids), documents_path(d, text));
}

/* Files of a directory that are refused, collected so that one message names several of them. */
struct unread {
    char first[700];  /* message about the first one; "": there is none */
    char others[200]; /* names of further files, as many as fit */
    int64_t n, named;
};

static void add_unread(struct unread *u, const char *path)
{
    const size_t at = strlen(u->others);
    const char *name = strrchr(path, '/') ? strrchr(path, '/') + 1 : path;
    if (u->n++ == 0)
        snprintf(u->first, sizeof u->first, "%s", status_message());
    else if (at + strlen(name) + 3 < sizeof u->others - 1)
        u->named += snprintf(u->others + at, sizeof u->others - at, "%s%s", at > 0 ? ", " : "", name) > 0;
}

static enum status refuse_unread(const struct unread *u)
{
    char more[300] = "";
    if (u->n > 1 && u->named == 0)
        snprintf(more, sizeof more, "; nor %s %lld more read", u->n > 2 ? "are" : "is", (long long)(u->n - 1));
    else if (u->n > 1 + u->named)
        snprintf(more, sizeof more, "; nor are %s and %lld more read", u->others, (long long)(u->n - 1 - u->named));
    else if (u->n > 1)
        snprintf(more, sizeof more, "; nor %s %s read", u->n > 2 ? "are" : "is", u->others);
    return status_fail(
        ERR_INVALID,
        "%s%s: a directory with what is no text is no --data, its files are: give them ('DIR/**/*.txt'), or move the others",
        u->first, more);
}

enum status kinds_find(const struct documents *d, const struct kinds_config *config, struct file_kind **file, int *tokens)
{
    int64_t n = documents_count(d);
    struct file_kind *k = sys_calloc((size_t)n + 1, sizeof *k);
    enum status st = k ? OK : status_fail(ERR_NOMEM, "out of memory: a list of files");
    *tokens = config->has_tokenizer;
    struct unread unread = {.n = 0};
    for (int64_t i = 0; i < n && st == OK; i++) {
        int is_foreign = 0;
        st = find_kind(documents_path(d, i), documents_is_found(d, i), config, &k[i], &is_foreign);
        if (is_foreign && documents_is_found(d, i)) {
            add_unread(&unread, documents_path(d, i));
            st = OK;
            continue;
        }
        *tokens |= kinds_are_ids(&k[i]) || input_is_compressed(documents_path(d, i));
    }
    if (st == OK && unread.n > 0)
        st = refuse_unread(&unread);
    if (st == OK && !config->has_tokenizer)
        st = check_together(d, k);
    if (st != OK)
        kinds_free(k, n);
    else
        *file = k;
    return st;
}

void kinds_free(struct file_kind *file, int64_t n)
{
    for (int64_t i = 0; file && i < n; i++)
        id_file_free(&file[i].ids);
    free(file);
}
