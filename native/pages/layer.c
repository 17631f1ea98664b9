/*
 * The layer file: a header block of zeros, the pages in ascending order, then one extent of 16 bytes for each
 * run (first guest page, count, zero; little-endian).
 */
#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "pages.h"

#define PARTS_MAX 1024u /* limit of one call */

struct extent {
    uint64_t first;
    uint32_t count;
    uint32_t zero;
};

static void write_extents(int fd, const struct runs *runs, uint64_t at)
{
    struct extent *table = calloc(runs->count ? runs->count : 1, sizeof *table);
    if (!table)
        fail(ENOMEM, "not enough memory for the extent table");
    for (size_t i = 0; i < runs->count; i++) {
        table[i].first = htole64(runs->all[i].first);
        table[i].count = htole32((uint32_t)runs->all[i].count);
    }
    if (pwrite_all(fd, table, runs->count * sizeof *table, (off_t)at) < 0)
        fail(errno, "cannot write the layer");
    free(table);
}

/* Pages in their places have gaps between the runs. */
static int write_runs(int fd, const struct buffer *buffer, const struct runs *runs)
{
    struct iovec parts[PARTS_MAX];
    size_t count = 0;
    uint64_t at = 0, bytes = 0;
    for (size_t i = 0; i < runs->count; i++) {
        const struct run *run = &runs->all[i];
        parts[count++] = (struct iovec){buffer_at(buffer, run, 0), run->count * PAGE};
        bytes += run->count * PAGE;
        if (count < PARTS_MAX && i + 1 < runs->count)
            continue;
        if (pwritev_all(fd, parts, count, (off_t)(PAGE + at)) < 0)
            return -1;
        at += bytes;
        count = bytes = 0;
    }
    return 0;
}

uint64_t layer_write(int fd, struct buffer *buffer, const struct runs *runs)
{
    uint64_t end = PAGE + runs->pages * PAGE, length = end + runs->count * sizeof(struct extent);
    /* The extents overwrite the slack. */
    if (buffer->file >= 0)
        buffer_resize(buffer, runs->pages);
    else if (write_runs(fd, buffer, runs) < 0)
        fail(errno, "cannot write the layer");
    if (ftruncate(fd, (off_t)end) < 0)
        fail(errno, "cannot write the layer");
    write_extents(fd, runs, end);
    return length;
}

void layer_apply(const char *path, uint64_t bytes, const struct buffer *buffer, const struct runs *runs)
{
    struct stat st;
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &st) < 0)
        fail(errno, "cannot open \"%s\"", path);
    if ((uint64_t)st.st_size != bytes)
        fail(EINVAL, "\"%s\" has %" PRIu64 " bytes, but guest memory has %" PRIu64, path, (uint64_t)st.st_size, bytes);
    for (size_t i = 0; i < runs->count; i++) {
        const struct run *run = &runs->all[i];
        if (pwrite_all(fd, buffer_at(buffer, run, 0), run->count * PAGE, (off_t)(run->first * PAGE)) < 0)
            fail(errno, "cannot write \"%s\"", path);
    }
    if (close(fd) < 0)
        fail(errno, "cannot write \"%s\"", path);
}
