/*
 * A fork(2) write-protects the memory of the agent, so its next write to each page is a page fault. In the
 * children of a snapshot, where all code is slow when it runs first, these faults would be on the path to the
 * first answer. So the agent takes them itself, when the process that it forked has ended.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "fork/fork.h"
#include "util.h"

#define PAGE 4096u
#define MAPS_MAX 16384u
#define CHUNK 512u /* pages */

/* Writes to each page that is there, without a change. Others stay as they are: they would cost memory. */
static void touch(uintptr_t from, uintptr_t to)
{
    unsigned char is_there[CHUNK];
    while (from < to) {
        uintptr_t pages = (to - from) / PAGE < CHUNK ? (to - from) / PAGE : CHUNK;
        if (mincore((void *)from, pages * PAGE, is_there) < 0)
            return;
        for (uintptr_t i = 0; i < pages; i++)
            if (is_there[i] & 1)
                __atomic_fetch_or((unsigned char *)(from + i * PAGE), 0, __ATOMIC_RELAXED);
        from += pages * PAGE;
    }
}

void pages_own(void)
{
    static char maps[MAPS_MAX];
    if (read_whole("/proc/self/maps", maps, sizeof maps) <= 0)
        return;
    for (char *line = maps, *end; (end = strchr(line, '\n')); line = end + 1) {
        char *at;
        uintptr_t from = strtoul(line, &at, 16);
        uintptr_t to = *at == '-' ? strtoul(at + 1, &at, 16) : 0;
        if (to && strncmp(at, " rw-p", 5) == 0)
            touch(from, to);
    }
}
