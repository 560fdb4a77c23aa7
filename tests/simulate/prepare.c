/* Data and models of the simulated runs. */
#include "cluster.h"

#include "base/rng.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { VOCABULARY = 32 };

static int write_ids(const char *root, const char *name, int n)
{
    char path[256];
    snprintf(path, sizeof path, "%s/%s", root, name);
    FILE *f = fopen(path, "we");
    for (int i = 0; f && i < n; i++) {
        const uint16_t id = (uint16_t)rng_below(5, 7, (uint64_t)i, VOCABULARY);
        fwrite(&id, sizeof id, 1, f);
    }
    return f && fclose(f) == 0;
}

/* Links a model of tests/golden. */
static int link_model(const char *root, const char *name, const char *golden)
{
    char from[4096], to[256];
    snprintf(from, sizeof from, "%s/tests/golden/%s", getenv("LTRAIN_SOURCE_ROOT"), golden);
    snprintf(to, sizeof to, "%s/%s", root, name);
    return symlink(from, to) == 0;
}

int cluster_prepare(const char *root)
{
    setenv("XDG_CACHE_HOME", root, 1); /* without this machine's profile */
    setenv("TMPDIR", root, 1);
    return getenv("LTRAIN_SOURCE_ROOT") && write_ids(root, "ids.bin", 4096) && write_ids(root, "held.bin", 200) &&
           link_model(root, "dense", "lora-gqa") && link_model(root, "experts", "moe/olmoe");
}
