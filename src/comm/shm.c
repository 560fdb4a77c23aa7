/* Room in /dev/shm: containers have 64 MB there, or less, and other programs fill it. */
#include "comm/shm.h"

#include "base/disk.h"
#include "base/sys.h"
#include "base/units.h"

#include <stdint.h>
#include <stdio.h>
#include <unistd.h>

static const char directory[] = "/dev/shm";
static const int64_t SEGMENT = 4 << 20; /* bytes for each rank: btl_vader_segment_size of Open MPI 4.1 */
static const int64_t BESIDE = 64 << 10; /* bytes beside the segments: names, pages of headers */

int shm_is_short(int ranks, char *text, size_t bytes)
{
    struct disk disk;
    char there[32], wanted[32];
    const int64_t need = ranks * (SEGMENT + BESIDE);
    if (sys_access(directory, W_OK) != 0 || disk_look(directory, &disk) != 0 || disk.free_bytes >= need)
        return 0;
    units_format_apart(disk.free_bytes, need, there, wanted);
    snprintf(text, bytes, "%s has %s free, and %d rank%s need%s %s there", directory, there, ranks, ranks > 1 ? "s" : "",
             ranks > 1 ? "" : "s", wanted);
    return 1;
}
