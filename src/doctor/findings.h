/* Findings of checks: verdicts with their remedies. Private to src/doctor. */
#ifndef LTRAIN_DOCTOR_FINDINGS_H
#define LTRAIN_DOCTOR_FINDINGS_H

#include "base/status.h"

#include <stdio.h>

enum verdict { VERDICT_OK, VERDICT_WARNING, VERDICT_FAILURE, VERDICT_UNMEASURED, VERDICTS };

struct finding {
    enum verdict verdict;
    char check[16];            /* name of the check, one word: "memlock" */
    char text[600], cure[400]; /* cure: what to do about it; "": nothing */
};

enum { FINDINGS = 96 };

struct findings {
    int n;
    struct finding at[FINDINGS];
    int of[VERDICTS]; /* number of findings by verdict */
};

/* Appends a finding; cure may be "". Findings beyond the table's end are dropped. */
__attribute__((format(printf, 5, 6))) void findings_add(struct findings *f, enum verdict v, const char *check, const char *cure,
                                                        const char *format, ...);
/* Prints a line for each finding and one of totals. */
void findings_print(const struct findings *f, FILE *out);
/* Prints an object: "checks", an array of {"check", "verdict", "text", "cure"}, and the totals by verdict. */
enum status findings_print_json(const struct findings *f, FILE *out);

#endif
