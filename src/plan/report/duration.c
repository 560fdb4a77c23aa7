/* Times in the units that people read, and comparisons of rates. */
#include "plan/report/duration.h"

#include <math.h>
#include <stdio.h>

const char *report_time_unit(double seconds, double *unit)
{
    static const struct {
        double from, seconds;
        const char *name;
    } units[] = {{999.5 * DAY, 365 * DAY, "years"},
                 {47.95 * 3600, DAY, "days"},
                 {99.5 * 60, 3600, "h"},
                 {999.5, 60, "min"},
                 {0.00995, 1, "s"},
                 {0.00995e-3, 1e-3, "ms"},
                 {0.00995e-6, 1e-6, "us"},
                 {-INFINITY, 1e-9, "ns"}};
    int i = 0;
    while (seconds < units[i].from)
        i++;
    *unit = units[i].seconds;
    return units[i].name;
}

const char *report_duration(double seconds, char buf[32])
{
    double unit = 1;
    const char *name = seconds > 0 ? report_time_unit(seconds, &unit) : "s";
    snprintf(buf, 32, seconds / unit < 999.5 ? "%.3g %s" : "%.0f %s", seconds / unit, name);
    return buf;
}

const char *report_compared(double faster, double least, char buf[32])
{
    int slower = faster < 1;
    double times = slower ? 1 / faster : faster;
    if (times < 1 + least)
        snprintf(buf, 32, "as fast");
    else if (times < 2)
        snprintf(buf, 32, "%.*f%% %s", least < 0.001, 100 * (times - 1), slower ? "slower" : "faster");
    else
        snprintf(buf, 32, slower ? "takes %.*f times as long" : "%.*f times as fast", times < 10, times);
    return buf;
}
