/* Parses numbers and writes whole buffers. */
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

bool parse_u64(const char *text, uint64_t *value)
{
    if (*text < '0' || *text > '9')
        return false;
    char *end;
    errno = 0;
    *value = strtoull(text, &end, 10);
    return errno == 0 && *end == 0;
}
