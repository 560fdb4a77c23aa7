/* Times in the units that people read. */
#ifndef LTRAIN_PLAN_REPORT_DURATION_H
#define LTRAIN_PLAN_REPORT_DURATION_H

#define DAY 86400.0 /* seconds */

/* Returns the name of the unit in which people read `seconds`, from ns to years. *unit: seconds of one such unit. */
const char *report_time_unit(double seconds, double *unit);
/* Formats a time with three digits: "0.0314 s", "9.6 ms", "317 s", "36 min", "3.4 h", "3.2 days". "0 s" is printed for zero only.
 * Writes into buf and returns it. */
const char *report_duration(double seconds, char buf[32]);

/* Formats a rate that is `faster` times another one: "31% faster", "12.5% slower" (a step takes 12.5% longer), "2.4 times as
 * fast", "takes 3 times as long"; "as fast" if both differ by less than `least`. Writes into buf and returns it. */
const char *report_compared(double faster, double least, char buf[32]);

#endif
