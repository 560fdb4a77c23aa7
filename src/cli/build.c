/* Identifying a build: its release, and a hash of the running program's bytes. */
#include "cli/build.h"

#include "base/num.h"
#include "base/sys.h"
#include "build_config.h"
#include "cli/build_commit.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <xxhash.h>

const char build_text[] = "ltrain " LTRAIN_VERSION "\nbuilt " LTRAIN_BUILT "\ncommit " LTRAIN_COMMIT "\n";
const char build_version[] = "ltrain " LTRAIN_VERSION " (commit " LTRAIN_COMMIT ")";

struct build {
    char version[32];
    uint64_t xxh3; /* hash of the executable: two builds of one version differ, too */
};

static enum status identify(struct build *b)
{
    static const char path[] = "/proc/self/exe"; /* the file that was started, even if another one has taken its place */
    char chunk[1 << 16];
    ssize_t n;
    off_t at = 0;
    memset(b, 0, sizeof *b);
    strncpy(b->version, LTRAIN_VERSION, sizeof b->version - 1);
    int fd = sys_open(path, O_RDONLY | O_CLOEXEC, 0);
    if (fd < 0)
        return status_fail(ERR_IO, "cannot read %s, to compare the ranks' builds: %s", path, strerror(errno));
    while ((n = sys_pread(fd, chunk, sizeof chunk, at)) > 0 || (n < 0 && errno == EINTR)) {
        if (n > 0)
            b->xxh3 = XXH3_64bits_withSeed(chunk, (size_t)n, b->xxh3);
        at += max_i64(0, n);
    }
    int error = errno;
    sys_close(fd);
    return n == 0 ? OK : status_fail(ERR_IO, "cannot read %s, to compare the ranks' builds: %s", path, strerror(error));
}

enum status build_compare(struct comm *c)
{
    struct build own, first;
    if (comm_size(c) == 1)
        return OK;
    TRY(comm_agree(c, identify(&own)));
    first = own;
    TRY(comm_broadcast(c, 0, &first, sizeof first));
    if (memcmp(&own, &first, sizeof own) == 0)
        return comm_agree(c, OK);
    return comm_agree(c, status_fail(ERR_INVALID,
                                     "this rank runs ltrain %s (executable %016llx), and rank 0 runs ltrain %s (%016llx): all "
                                     "hosts need the same program",
                                     own.version, (unsigned long long)own.xxh3, first.version, (unsigned long long)first.xxh3));
}
