/* copy, ranges: sparse files. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/fs.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "pages.h"

#define CHUNK (256u << 10)

static const char *unfinished;

static void remove_unfinished(void) { unlink(unfinished); }

/*
 * The next range with data at or after *start; false at the end. Without SEEK_DATA, the whole file is data.
 */
static bool next_data(int fd, off_t size, off_t *start, off_t *end)
{
    off_t data = lseek(fd, *start, SEEK_DATA);
    if (data < 0 && errno != ENXIO && errno != EINVAL)
        fail(errno, "cannot find the data of the file");
    if (data < 0 && errno == EINVAL)
        data = *start;
    if (data < 0 || data >= size)
        return false;
    off_t hole = lseek(fd, data, SEEK_HOLE);
    *start = data;
    *end = hole < 0 || hole > size ? size : hole;
    return true;
}

static void copy_buffered(int from, int to, off_t at, off_t end)
{
    static uint8_t *buffer;
    if (!buffer && !(buffer = malloc(CHUNK)))
        fail(ENOMEM, "not enough memory for the copy buffer");
    while (at < end) {
        ssize_t n = pread(from, buffer, end - at < CHUNK ? (size_t)(end - at) : CHUNK, at);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            fail(n < 0 ? errno : EIO, "cannot read the source");
        if (pwrite_all(to, buffer, (size_t)n, at) < 0)
            fail(errno, "cannot write the copy");
        at += n;
    }
}

static void copy_range(int from, int to, off_t at, off_t end)
{
    while (at < end) {
        off_t in = at, out = at;
        ssize_t n = copy_file_range(from, &in, to, &out, (size_t)(end - at), 0);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && (errno == ENOSPC || errno == EDQUOT || errno == EIO || errno == EFBIG))
            fail(errno, "cannot write the copy");
        if (n <= 0) {
            copy_buffered(from, to, at, end);
            return;
        }
        at += n;
    }
}

static uint64_t copy_data(int from, int to, off_t size)
{
    uint64_t copied = 0;
    if (ftruncate(to, size) < 0)
        fail(errno, "cannot write the copy");
    for (off_t start = 0, end; start < size && next_data(from, size, &start, &end); start = end) {
        copy_range(from, to, start, end);
        copied += (uint64_t)(end - start);
    }
    return copied;
}

static int open_source(const char *path, struct stat *st)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0 || fstat(fd, st) < 0)
        fail(errno, "cannot open \"%s\"", path);
    if (!S_ISREG(st->st_mode))
        fail(EINVAL, "\"%s\" is not a regular file", path);
    return fd;
}

int copy_command(const char *from, const char *to)
{
    struct stat st;
    int in = open_source(from, &st);
    int out = open(to, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, st.st_mode & 0777);
    if (out < 0)
        fail(errno, "cannot create \"%s\"", to);
    unfinished = to;
    on_failure(remove_unfinished);
    if (ioctl(out, FICLONE, in) == 0) {
        printf("reflink %" PRIu64 " 0\n", (uint64_t)st.st_size);
        return 0;
    }
    uint64_t copied = copy_data(in, out, st.st_size);
    if (close(out) < 0)
        fail(errno, "cannot write the copy");
    printf("copy %" PRIu64 " %" PRIu64 "\n", (uint64_t)st.st_size, copied);
    return 0;
}

int ranges_command(const char *path)
{
    struct stat st;
    int fd = open_source(path, &st);
    for (off_t start = 0, end; start < st.st_size && next_data(fd, st.st_size, &start, &end); start = end)
        printf("%" PRIu64 " %" PRIu64 "\n", (uint64_t)start, (uint64_t)end);
    return 0;
}
