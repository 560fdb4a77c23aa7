/* Which nvme paths a rank uses. */
#include "offload/drives.h"

#include <stdio.h>

int drives_of_rank(int n_paths, int local_rank, int local_size, int *index)
{
    int n = 0, own = n_paths >= local_size;
    for (int i = 0; i < n_paths; i++)
        if (!own || i % local_size == local_rank)
            index[n++] = i;
    return n;
}

const char *drives_describe(int n_paths, int local_size, char *text, int bytes)
{
    if (bytes > 0)
        text[0] = 0;
    if (n_paths == 0 || local_size < 2)
        return text;
    if (n_paths < local_size)
        snprintf(text, (size_t)bytes, "drives: each of the %d ranks of a host stripes over %s", local_size,
                 n_paths == 1 ? "the one nvme path" : "all nvme paths");
    else if (n_paths == local_size)
        snprintf(text, (size_t)bytes, "drives: the n-th rank of a host has the n-th of %d nvme paths to itself", n_paths);
    else
        snprintf(text, (size_t)bytes,
                 "drives: of %d nvme paths each of the %d ranks of a host has every %d-th to itself, from its own number on",
                 n_paths, local_size, local_size);
    return text;
}
