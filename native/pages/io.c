/* Parses numbers, and writes everything that it is given. */
#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

#include "pages.h"

#define WRITE_MAX (64u << 20)

int pwrite_all(int fd, const void *data, size_t bytes, off_t at)
{
    const uint8_t *from = data;
    while (bytes > 0) {
        ssize_t n = pwrite(fd, from, bytes < WRITE_MAX ? bytes : WRITE_MAX, at);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return -1;
        if (n == 0) {
            errno = EIO;
            return -1;
        }
        from += n;
        at += n;
        bytes -= (size_t)n;
    }
    return 0;
}

size_t skip_bytes(struct iovec *parts, size_t count, size_t bytes)
{
    size_t gone = 0;
    while (gone < count && bytes >= parts[gone].iov_len)
        bytes -= parts[gone++].iov_len;
    if (gone < count) {
        parts[gone].iov_base = (uint8_t *)parts[gone].iov_base + bytes;
        parts[gone].iov_len -= bytes;
    }
    return gone;
}

int pwritev_all(int fd, struct iovec *parts, size_t count, off_t at)
{
    while (count > 0) {
        ssize_t n = pwritev(fd, parts, (int)count, at);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return -1;
        if (n == 0) {
            errno = EIO;
            return -1;
        }
        at += n;
        size_t gone = skip_bytes(parts, count, (size_t)n);
        parts += gone;
        count -= gone;
    }
    return 0;
}

bool parse_u64(const char *text, uint64_t *value)
{
    if (*text < '0' || *text > '9')
        return false;
    char *end;
    errno = 0;
    *value = strtoull(text, &end, 10);
    return errno == 0 && *end == 0;
}
