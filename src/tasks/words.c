#include "tasks/words.h"

#include <stdio.h>
#include <string.h>

enum { WORDS = 64 }; /* words of each list; a power of two, as keys_write permutes by an odd factor */

static const char *const adjectives[WORDS] = {
    "able",   "ancient", "bold",   "brave", "brisk",  "bright", "broad",  "busy",   "calm",   "careful", "cheap",
    "clean",  "clever",  "cold",   "cosy",  "crisp",  "curly",  "dark",   "deep",   "dry",    "eager",   "early",
    "easy",   "faint",   "fancy",  "fast",  "fierce", "fine",   "flat",   "fresh",  "gentle", "giant",   "glad",
    "golden", "grand",   "great",  "happy", "hollow", "humble", "jolly",  "keen",   "kind",   "late",    "lazy",
    "light",  "little",  "lively", "loud",  "lucky",  "mellow", "mighty", "narrow", "neat",   "noble",   "proud",
    "quick",  "quiet",   "rapid",  "round", "silent", "smooth", "steady", "swift",  "warm"};
static const char *const nouns[WORDS] = {
    "anchor",   "apple",   "arrow",   "badger", "basket", "beacon",  "bell",   "bridge",  "bucket",  "candle", "canyon",
    "castle",   "cedar",   "cherry",  "cloud",  "comet",  "coral",   "crow",   "desert",  "dolphin", "dragon", "eagle",
    "engine",   "falcon",  "feather", "ferry",  "forest", "fox",     "garden", "glacier", "hammer",  "harbor", "hawk",
    "hill",     "island",  "jacket",  "kettle", "ladder", "lantern", "lemon",  "lion",    "maple",   "meadow", "mirror",
    "mountain", "orchard", "otter",   "panda",  "pebble", "pepper",  "piano",  "pillow",  "planet",  "rabbit", "river",
    "rocket",   "saddle",  "shadow",  "spider", "temple", "tiger",   "tulip",  "violin",  "window"};

void keys_draw(struct dice *d, int64_t least, struct keys *out)
{
    *out = (struct keys){.words = 2, .n = WORDS * WORDS};
    while (out->n < (uint64_t)least && out->words < 8) {
        out->words++;
        out->n *= WORDS;
    }
    out->factor = 2 * dice_roll(d, out->n / 2) + 1;
    out->shift = dice_roll(d, out->n);
}

void keys_write(const struct keys *k, int64_t i, char out[KEY_BYTES])
{
    uint64_t number = ((uint64_t)i * k->factor + k->shift) % k->n;
    size_t n = 0;
    number ^= number >> 3 * k->words; /* mixes the upper half of the bits into the lower; a permutation, as the odd factor is */
    number = number * k->factor % k->n;
    number ^= number >> 3 * k->words;
    for (int w = 0; w < k->words; w++, number /= WORDS)
        n += (size_t)snprintf(out + n, KEY_BYTES - n, "%s%s", w ? "-" : "",
                              (w + 1 < k->words ? adjectives : nouns)[number % WORDS]);
}

void number_draw(struct dice *d, char out[NUMBER_BYTES])
{
    snprintf(out, NUMBER_BYTES, "%07u", 1000000u + (unsigned)dice_roll(d, 9000000));
}

void name_draw(struct dice *d, char out[NAME_BYTES])
{
    for (int i = 0; i < NAME_BYTES - 1; i++)
        out[i] = (char)('A' + dice_roll(d, 26));
    out[NAME_BYTES - 1] = 0;
}

void coded_draw(struct dice *d, char out[CODED_BYTES])
{
    for (int i = 0; i < CODED_BYTES - 1; i++)
        out[i] = (char)('a' + dice_roll(d, 26));
    out[CODED_BYTES - 1] = 0;
}
