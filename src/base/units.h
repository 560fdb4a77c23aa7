/* Numbers as people type and read them. */
#ifndef LTRAIN_BASE_UNITS_H
#define LTRAIN_BASE_UNITS_H

#include "base/status.h"

#include <stdint.h>

/* Parses a token count: "420k", "1m", "4096", "430,080"; k, m, g are powers of 1024. A count beyond 9e18 becomes INT64_MAX, which
 * is above every limit. ERR_INVALID names `key`. */
enum status units_parse_count(const char *key, const char *text, int64_t *out);
/* Parses a number of steps: "1000", "20,000". Suffixes are refused: 1k would be 1024 as for tokens, but a user who types 1k steps
 * means 1000. */
enum status units_parse_steps(const char *key, const char *text, int64_t *out);
/* Parses bytes: "256M", "1.5GiB", "4096", "2T", in powers of 1024. */
enum status units_parse_bytes(const char *key, const char *text, int64_t *out);
/* Parses a rate, in powers of 1000, into multiples of `unit`: "7GB/s", "500 MB/s", "1.2TB/s". Returns 0 if the text is no such
 * rate (Gb/s means bits), or is not above 0. */
int units_parse_rate(const char *text, double unit, double *out);
/* Formats bytes, as "1.5 GiB", into buf and returns buf. */
const char *units_format_bytes(int64_t bytes, char buf[32]);
/* Formats two numbers of bytes with enough digits that different numbers look different: "38.02 GiB", "38.00 GiB". */
void units_format_apart(int64_t a, int64_t b, char text_a[32], char text_b[32]);
/* Formats bytes for the progress line, as "212M" or "1.1G". */
const char *units_format_short(int64_t bytes, char buf[32]);
/* Formats a count, as "430,080". */
const char *units_format_count(int64_t n, char buf[32]);

#endif
