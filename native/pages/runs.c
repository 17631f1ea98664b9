/* Sets of guest pages, stored as runs that are as long as possible. */
#include <errno.h>
#include <stdlib.h>

#include "pages.h"

void runs_clear(struct runs *runs)
{
    runs->count = 0;
    runs->pages = 0;
}

void runs_add(struct runs *runs, uint64_t first, uint64_t count)
{
    struct run *last = runs->count > 0 ? &runs->all[runs->count - 1] : NULL;
    if (last && last->first + last->count == first) {
        last->count += count;
        runs->pages += count;
        return;
    }
    if (runs->count == runs->capacity) {
        runs->capacity = runs->capacity ? runs->capacity * 2 : 4096;
        runs->all = reallocarray(runs->all, runs->capacity, sizeof *runs->all);
        if (!runs->all)
            fail(ENOMEM, "not enough memory for the list of pages");
    }
    runs->all[runs->count++] = (struct run){.first = first, .count = count, .at = runs->pages};
    runs->pages += count;
}

size_t runs_find(const struct runs *runs, uint64_t index)
{
    size_t low = 0, high = runs->count;
    while (high - low > 1) {
        size_t middle = low + (high - low) / 2;
        if (runs->all[middle].at <= index)
            low = middle;
        else
            high = middle;
    }
    return low;
}
