/* A bit for each guest page. */
#include <errno.h>
#include <stdlib.h>

#include "pages.h"

#define WORD 64u

uint64_t *bits_new(uint64_t count)
{
    uint64_t *bits = calloc(count / WORD + 1, sizeof *bits);
    if (!bits)
        fail(ENOMEM, "not enough memory for the set of pages");
    return bits;
}

void bits_set(uint64_t *bits, uint64_t first, uint64_t count)
{
    for (uint64_t i = first; i < first + count;) {
        if (i % WORD == 0 && first + count - i >= WORD) {
            bits[i / WORD] = UINT64_MAX;
            i += WORD;
        } else {
            bits[i / WORD] |= 1ull << i % WORD;
            i++;
        }
    }
}

uint64_t bits_find(const uint64_t *bits, uint64_t from, uint64_t end, bool value)
{
    while (from < end) {
        uint64_t word = (value ? bits[from / WORD] : ~bits[from / WORD]) >> from % WORD;
        if (word != 0) {
            uint64_t found = from + (uint64_t)__builtin_ctzll(word);
            return found < end ? found : end;
        }
        from += WORD - from % WORD;
    }
    return end;
}
