#include "report/page.h"

#include <stdlib.h>

/* Writes JSON so that no text in it can end the script element. Returns 0 on failure. */
static int write_data(FILE *f, const json_t *data)
{
    char *text = json_dumps(data, JSON_COMPACT | JSON_REAL_PRECISION(7));
    if (!text)
        return 0;
    for (const char *c = text; *c; c++)
        *c == '<' ? (void)fputs("\\u003c", f) : (void)fputc(*c, f);
    free(text);
    return 1;
}

int page_write(FILE *f, const json_t *data)
{
    fputs(PAGE_BEGINNING "\n<html lang=\"en\">\n<meta charset=\"utf-8\">\n"
                         "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
                         "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'; "
                         "script-src 'unsafe-inline'; img-src data:\">\n"
                         "<link rel=\"icon\" href=\"data:,\">\n<title>ltrain report</title>\n<style>\n",
          f);
    fwrite(report_style, 1, report_style_bytes, f);
    fputs(
        "</style>\n<body>\n<main><p class=\"plain\">This report is drawn by the script in it, which this browser does not run.</p>"
        "</main>\n<script type=\"application/json\" id=\"data\">",
        f);
    const int whole = write_data(f, data);
    fputs("</script>\n<script>\n", f);
    fwrite(report_script, 1, report_script_bytes, f);
    fputs("</script>\n</body>\n</html>\n", f);
    return whole && !ferror(f);
}
