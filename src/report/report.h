/* ltrain report: one HTML file of one or more runs, which needs no network. */
#ifndef LTRAIN_REPORT_REPORT_H
#define LTRAIN_REPORT_REPORT_H

#include "base/status.h"

#include <stdio.h>

enum { REPORT_PATHS_MAX = 16 };

struct report_request {
    const char *const *path; /* directories of runs, and files that `ltrain eval --json` printed; borrowed */
    int n_paths;
    const char *to; /* file to write; NULL: report.html in the only run's directory, or in the working directory */
};

/* Reads the runs and writes the file, whose name is printed. A report of that name is replaced, another file is not.
 * ERR_INVALID: a path is no run and no evaluation. ERR_IO: the file cannot be written. */
enum status report_write(const struct report_request *r);
/* Prints the keys of metrics.jsonl as the table of docs/metrics.md. */
void report_print_keys(FILE *f);

#endif
