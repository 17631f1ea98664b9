/*
 * Finds the pages of a private file mapping that belong to the process: those in the page tables that are
 * neither the file's nor shared. A page that is being moved or was swapped out counts as before.
 *
 * PAGEMAP_SCAN (Linux 6.7) finds them in the kernel; on older kernels, pagemap is read entry by entry. It can
 * also protect the pages that it finds, each in one step with finding it.
 */
#include <errno.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "pages.h"

#define PROTECT (1u << 0)

struct scan_region {
    uint64_t start, end, categories;
};

struct scan_request {
    uint64_t size, flags;
    uint64_t start, end, walk_end;
    uint64_t regions, region_count;
    uint64_t max_pages;
    uint64_t inverted, all_of, any_of, returned;
};

#define SCAN_IOCTL _IOWR('f', 16, struct scan_request)

#define ENTRY_PRESENT (1ull << 63)
#define ENTRY_SWAPPED (1ull << 62)
#define ENTRY_FILE (1ull << 61)

struct range {
    uint64_t address, bytes; /* in the process */
    uint64_t page;           /* the first one */
};

static void add_regions(const struct range *range, const struct scan_region *regions, int count, struct runs *found,
                        struct runs *absent)
{
    for (int i = 0; i < count; i++)
        runs_add(absent && (regions[i].categories & PAGE_SWAPPED) ? absent : found,
                 range->page + (regions[i].start - range->address) / PAGE, (regions[i].end - regions[i].start) / PAGE);
}

/* False when the kernel does not support the ioctl. */
static bool scan_range(const struct target *target, const struct range *range, const struct question *question,
                       struct runs *found, struct runs *absent)
{
    static struct scan_region regions[16384];
    struct scan_request request = {
        .size = sizeof request,
        .flags = question->protect ? PROTECT : 0,
        .end = range->address + range->bytes,
        .regions = (uint64_t)regions,
        .region_count = sizeof regions / sizeof *regions,
        .inverted = question->none_of,
        .all_of = question->all_of | question->none_of,
        .any_of = PAGE_PRESENT | PAGE_SWAPPED,
        .returned = absent ? PAGE_SWAPPED : 0,
    };
    for (uint64_t at = range->address, next; at < request.end; at = next) {
        request.start = next = at;
        int n = ioctl(target->pagemap, SCAN_IOCTL, &request);
        /* An interrupted walk may have protected pages that it has not reported. */
        if (n < 0 && errno == EINTR && !question->protect)
            continue;
        if (n < 0 && (errno == ENOTTY || errno == EINVAL) && at == range->address)
            return false;
        if (n < 0)
            target_unreadable(target, errno);
        /*
         * The kernel may say that a long walk ended before the last region it reports. No page below the end of that
         * region is walked again: one that was written in between would be protected without being reported.
         */
        next = n > 0 && regions[n - 1].end > request.walk_end ? regions[n - 1].end : request.walk_end;
        if (next <= at)
            fail(EIO, "the scan of process %d does not advance", target->pid);
        add_regions(range, regions, n, found, absent);
    }
    return true;
}

static void scan_plain(const struct target *target, const struct piece *piece, struct runs *runs)
{
    static uint64_t entries[32768];
    uint64_t pages = piece->bytes / PAGE, base = piece->offset / PAGE;
    for (uint64_t done = 0; done < pages;) {
        uint64_t want = pages - done < 32768 ? pages - done : 32768;
        ssize_t n = pread(target->pagemap, entries, want * 8, (off_t)((piece->address / PAGE + done) * 8));
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 8)
            target_unreadable(target, n < 0 ? errno : ESRCH);
        for (uint64_t i = 0; i < (uint64_t)n / 8; i++)
            if ((entries[i] & (ENTRY_PRESENT | ENTRY_SWAPPED)) && !(entries[i] & ENTRY_FILE))
                runs_add(runs, base + done + i, 1);
        done += (uint64_t)n / 8;
    }
}

void scan(const struct target *target, bool plain, struct runs *runs)
{
    static const struct question private = {.none_of = PAGE_FILE};
    runs_clear(runs);
    for (size_t i = 0; i < target->pieces.count; i++) {
        const struct piece *piece = &target->pieces.all[i];
        struct range range = {.address = piece->address, .bytes = piece->bytes, .page = piece->offset / PAGE};
        if (plain || !scan_range(target, &range, &private, runs, NULL))
            scan_plain(target, piece, runs);
    }
}

void scan_pages(const struct target *target, uint64_t first, uint64_t count, const struct question *question,
                struct runs *found, struct runs *absent)
{
    for (uint64_t at = first * PAGE, end = (first + count) * PAGE; at < end;) {
        uint64_t left;
        struct range range = {.address = pieces_address(&target->pieces, at, &left), .page = at / PAGE};
        range.bytes = left < end - at ? left : end - at;
        if (!scan_range(target, &range, question, found, absent))
            fail(EIO, "cannot scan the memory of process %d", target->pid);
        at += range.bytes;
    }
}
