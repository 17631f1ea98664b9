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

void runs_merge(struct runs *into, const struct runs *a, const struct runs *b)
{
    const struct run *x = a->all, *y = b->all, *last_x = a->all + a->count, *last_y = b->all + b->count;
    uint64_t done = 0;
    while (x < last_x || y < last_y) {
        const struct run *next = y == last_y || (x < last_x && x->first < y->first) ? x++ : y++;
        uint64_t first = next->first > done ? next->first : done, end = next->first + next->count;
        if (first >= end)
            continue;
        runs_add(into, first, end - first);
        done = end;
    }
}

static void add_unset(struct runs *into, uint64_t at, uint64_t end, const uint64_t *bits)
{
    while ((at = bits_find(bits, at, end, false)) < end) {
        uint64_t next = bits_find(bits, at, end, true);
        runs_add(into, at, next - at);
        at = next;
    }
}

void runs_missing(struct runs *into, const struct runs *all, const struct runs *written, const uint64_t *bits)
{
    const struct run *next = written->all, *last = written->all + written->count;
    for (size_t i = 0; i < all->count; i++) {
        uint64_t at = all->all[i].first, end = at + all->all[i].count;
        for (; next < last && next->first < end; next++) {
            add_unset(into, at, next->first, bits);
            runs_add(into, next->first, next->count);
            at = next->first + next->count;
        }
        add_unset(into, at, end, bits);
    }
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
