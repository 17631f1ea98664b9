/* See util.h. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "util.h"

ssize_t read_whole(const char *path, char *buf, size_t size)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return -1;
    size_t len = 0;
    while (len < size - 1) {
        ssize_t n = read(fd, buf + len, size - 1 - len);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0) {
            int err = errno;
            close(fd);
            errno = err;
            return -1;
        }
        if (n == 0)
            break;
        len += (size_t)n;
    }
    close(fd);
    buf[len] = 0;
    return (ssize_t)len;
}

int write_all(int fd, const void *data, size_t n)
{
    const char *p = data;
    while (n > 0) {
        ssize_t w = write(fd, p, n);
        if (w < 0 && errno == EINTR)
            continue;
        if (w < 0)
            return -1;
        p += w;
        n -= (size_t)w;
    }
    return 0;
}

int make_parents(const char *path, mode_t mode)
{
    char copy[PATH_MAX];
    if (strlen(path) >= sizeof copy) {
        errno = ENAMETOOLONG;
        return -1;
    }
    strcpy(copy, path);
    char *last = strrchr(copy, '/');
    if (!last || last == copy)
        return 0;
    *last = 0;
    struct stat st;
    if (stat(copy, &st) == 0)
        return 0;
    for (char *p = copy + 1;; p++) {
        if (*p != '/' && *p != 0)
            continue;
        char was = *p;
        *p = 0;
        if (mkdir(copy, mode) < 0 && errno != EEXIST && !(errno == EROFS && stat(copy, &st) == 0))
            return -1;
        *p = was;
        if (!was)
            return 0;
    }
}

size_t text_copy(char *dst, size_t size, const char *src)
{
    size_t n = strnlen(src, size - 1);
    memcpy(dst, src, n);
    dst[n] = 0;
    return n;
}
