/*
 * The buffer for captured pages. It is faulted in when it is created, so that capturing causes no page
 * faults. A layer file is allocated first, so that a full disk is an error here and not a signal later.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <sys/mman.h>

#include "pages.h"

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

/* Fails early: with overcommit, the OOM killer would act later, and it could choose a VM. */
static void check_available(uint64_t bytes)
{
    FILE *file = fopen("/proc/meminfo", "re");
    char line[256];
    uint64_t kib = UINT64_MAX / 1024;
    while (file && fgets(line, sizeof line, file))
        if (sscanf(line, "MemAvailable: %" SCNu64, &kib) == 1)
            break;
    if (file)
        fclose(file);
    if (bytes > kib * 1024)
        fail(ENOMEM, "not enough memory for %" PRIu64 " MiB of guest pages", bytes >> 20);
}

static void populate(uint8_t *from, uint64_t bytes)
{
    int r;
    do
        r = madvise(from, bytes, MADV_POPULATE_WRITE);
    while (r < 0 && (errno == EINTR || errno == EAGAIN));
    if (r == 0)
        return;
    if (errno != EINVAL)
        fail(errno == EFAULT ? EIO : errno, "cannot prepare %" PRIu64 " MiB for guest pages", bytes >> 20);
    /* Linux before 5.14 */
    for (uint64_t i = 0; i < bytes; i += PAGE)
        ((volatile uint8_t *)from)[i] = from[i];
}

static void allocate(struct buffer *buffer, uint64_t pages)
{
    int err;
    do
        err = posix_fallocate(buffer->file, PAGE, (off_t)(pages * PAGE));
    while (err == EINTR);
    if (err)
        fail(err, "cannot write the layer: cannot allocate %" PRIu64 " MiB", pages * PAGE >> 20);
}

static uint8_t *map(const struct buffer *buffer, uint64_t bytes)
{
    void *base;
    if (buffer->base)
        base = mremap(buffer->base, buffer->pages * PAGE, bytes, MREMAP_MAYMOVE);
    else if (buffer->file >= 0)
        base = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, buffer->file, PAGE);
    else
        base = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (base == MAP_FAILED)
        fail(errno, "cannot map %" PRIu64 " MiB for guest pages", bytes >> 20);
    return base;
}

void buffer_resize(struct buffer *buffer, uint64_t pages)
{
    if (pages == buffer->pages)
        return;
    if (pages == 0) {
        munmap(buffer->base, buffer->pages * PAGE);
        buffer->base = NULL;
        buffer->pages = 0;
        return;
    }
    uint64_t had = buffer->pages;
    if (pages > had && buffer->file >= 0)
        allocate(buffer, pages);
    if (pages > had && buffer->file < 0)
        check_available((pages - had) * PAGE);
    buffer->base = map(buffer, pages * PAGE);
    buffer->pages = pages;
    if (pages > had) {
        if (buffer->file < 0)
            madvise(buffer->base, pages * PAGE, MADV_HUGEPAGE); /* optional: errors are ignored */
        populate(buffer->base + had * PAGE, (pages - had) * PAGE);
    }
}

bool buffer_place(struct buffer *buffer, uint64_t pages)
{
    void *base = mmap(NULL, pages * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (base == MAP_FAILED)
        return false;
    /* A huge page for each page that is copied would need the memory of the whole guest. */
    madvise(base, pages * PAGE, MADV_NOHUGEPAGE);
    buffer->base = base;
    buffer->pages = pages;
    buffer->placed = true;
    return true;
}

void buffer_expect(uint64_t pages)
{
    if (pages > 0)
        check_available(pages * PAGE);
}

uint8_t *buffer_at(const struct buffer *buffer, const struct run *run, uint64_t skip)
{
    return buffer->base + ((buffer->placed ? run->first : run->at) + skip) * PAGE;
}
