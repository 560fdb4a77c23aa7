/* The page around a report's data. Private to src/report. */
#ifndef LTRAIN_REPORT_PAGE_H
#define LTRAIN_REPORT_PAGE_H

#include <jansson.h>
#include <stdio.h>

/* First bytes of every report; a file without them is not overwritten. */
#define PAGE_BEGINNING "<!doctype html><!-- ltrain report -->"

extern const unsigned char report_style[], report_script[]; /* view/, made by view/embed.py */
extern const size_t report_style_bytes, report_script_bytes;

/* Writes the page with {"runs": [...], "scores": [...]} in it. Returns 0 if something could not be written. */
int page_write(FILE *f, const json_t *data);

#endif
