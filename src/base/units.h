/* Numbers as people type and read them. */
#ifndef LTRAIN_BASE_UNITS_H
#define LTRAIN_BASE_UNITS_H

#include "base/status.h"

#include <stdint.h>

/* "420k", "1m", "4096", "430,080": token counts, suffixes k m g are powers of 1024. Fails with ERR_INVALID naming `key`. What is
 * beyond 9e18 is INT64_MAX, which is beyond the limit of whoever asks. */
enum status units_parse_count(const char *key, const char *text, int64_t *out);
/* "1000", "20,000": numbers of steps, which have no suffixes: 1k is 1024 of tokens, and who types it of steps means 1000. */
enum status units_parse_steps(const char *key, const char *text, int64_t *out);
/* "256M", "1.5GiB", "4096", "2T": bytes, powers of 1024. */
enum status units_parse_bytes(const char *key, const char *text, int64_t *out);
/* "7GB/s", "500 MB/s", "1.2TB/s": bytes a second, powers of 1000, in multiples of `unit`. 0: not like these (Gb/s are
 * bits), or not above 0. */
int units_parse_rate(const char *text, double unit, double *out);
/* "1.5 GiB", "212 MiB" into buf (at least 32 bytes); returns buf. */
const char *units_format_bytes(int64_t bytes, char buf[32]);
/* Both as above if that tells them apart or they are equal, else with as many digits as it takes: "38.02 GiB", "38.00 GiB". */
void units_format_apart(int64_t a, int64_t b, char text_a[32], char text_b[32]);
/* "212M", "1.1G": the short form of the progress line. */
const char *units_format_short(int64_t bytes, char buf[32]);
/* "430,080" */
const char *units_format_count(int64_t n, char buf[32]);

#endif
