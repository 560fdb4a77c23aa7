/* Lines about data, before a run's first step and in `ltrain data`. */
#ifndef LTRAIN_TRAIN_DATA_REPORT_H
#define LTRAIN_TRAIN_DATA_REPORT_H

#include "data/corpus.h"

#include <stdio.h>

/* Prints a line about conversations, if there are any. */
void data_print_chats(const struct chat_counts *n, FILE *f);
/* Prints a remark if n > 0 characters were broken; path: a file with many of them. */
void data_print_repaired(int64_t n, const char *path, FILE *f);
/* Prints in a line how documents fill sequences of that length. */
void data_print_packing(int64_t seq_len, const struct packing_report *r, FILE *f);
/* Prints in a line how all documents of a corpus fill sequences, as the corpus is cut now. */
void data_print_packed(const struct corpus *c, FILE *f);
/* Prints remarks on files that are read twice or not at all. */
void data_print_remarks(const struct corpus *c, FILE *f);

#endif
