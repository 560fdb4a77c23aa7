/* Compares how evenly attention work is distributed over ring members, by counting attended pairs: zigzag layout and balanced
 * layout. `balance [SEEDS]` prints bench/results/balance.txt. */
#include "layouts.h"
#include "mixes.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const int64_t SEQ_LEN = 1 << 20;

struct worst {
    double zigzag, balanced;  /* largest over mean work of a member, for the worst seed */
    double zigzag_sent, sent; /* share of ring blocks that some query attends, mean over the seeds */
};

static double share_sent(const struct seq_layout *l, int ring, const int32_t *lo, uint8_t *needs)
{
    int64_t count = 0;
    seq_needs(l, lo, needs);
    for (int b = 0; b < ring * ring; b++)
        count += needs[b] && b % ring != b / ring;
    return (double)count / ((double)ring * (ring - 1));
}

static enum status measure(int ring, enum mix mix, int seeds, struct worst *out)
{
    struct seq_shape shape[2];
    struct seq_layout *l[2] = {NULL, NULL};
    enum status st = OK;
    *out = (struct worst){0};
    for (int k = 0; k < 2; k++) {
        TRY(seq_shape_create(SEQ_LEN, 1, ring, k ? SEQ_BALANCED : SEQ_ZIGZAG, &shape[k]));
        TRY(seq_layout_create(&shape[k], &l[k]));
    }
    int32_t *lo = malloc(sizeof *lo * (size_t)SEQ_LEN);
    uint8_t *needs = malloc((size_t)ring * (size_t)ring);
    for (int seed = 1; st == OK && seed <= seeds; seed++) {
        mix_fill(mix, SEQ_LEN, (uint64_t)seed, lo);
        for (int k = 0; st == OK && k < 2; k++)
            st = seq_layout_assign(l[k], lo);
        out->zigzag = fmax(out->zigzag, seq_imbalance(l[0]));
        out->balanced = fmax(out->balanced, seq_imbalance(l[1]));
        out->zigzag_sent += share_sent(l[0], ring, lo, needs) / seeds;
        out->sent += share_sent(l[1], ring, lo, needs) / seeds;
    }
    free(lo), free(needs);
    seq_layout_destroy(l[0]), seq_layout_destroy(l[1]);
    return st;
}

int main(int argc, char **argv)
{
    int seeds = argc > 1 ? atoi(argv[1]) : 8;
    static const int rings[] = {8, 64};
    printf("Attended pairs per ring member, largest over mean, and the share of ring blocks that are sent (the rest have no "
           "pairs).\n"
           "%lld tokens; the worst balance and the mean share of %d seeds. Written by: ninja -C BUILD bench/balance && "
           "BUILD/bench/balance\n",
           (long long)SEQ_LEN, seeds);
    for (int r = 0; r < 2; r++) {
        printf("\nring of %d%*szigzag          balanced\n%-36s max/mean  sent  max/mean  sent\n", rings[r],
               rings[r] < 10 ? 28 : 27, "", "documents");
        for (int mix = 0; mix < MIXES; mix++) {
            struct worst w;
            if (measure(rings[r], (enum mix)mix, seeds, &w) != OK) {
                fprintf(stderr, "%s\n", status_message());
                return 1;
            }
            printf("%-36s %8.4f  %4.2f  %8.4f  %4.2f\n", mix_names[mix], w.zigzag, w.zigzag_sent, w.balanced, w.sent);
        }
    }
    return 0;
}
