/* Descriptors that the program inherits. */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#include "launch.h"

#define BACKLOG 16

static void reserve(int number)
{
    int fd = open("/", O_PATH | O_CLOEXEC);
    if (fd < 0 || (fd != number && dup3(fd, number, O_CLOEXEC) < 0))
        fail("descriptor %d", number);
    if (fd != number)
        close(fd);
}

void descriptors_reserve(const struct options *options)
{
    for (size_t i = 0; i < options->keep_count; i++)
        if (fcntl(options->keep[i], F_GETFD) < 0)
            fail("keep %d", options->keep[i]);
    for (size_t i = 0; i < options->listener_count; i++)
        reserve(options->listeners[i].fd);
    if (options->net == NET_TAP)
        reserve(options->tap);
    if (options->track)
        reserve(options->track);
}

void descriptors_place(int fd, int number)
{
    if (dup2(fd, number) < 0)
        fail("descriptor %d", number);
    close(fd);
}

static void close_range_between(unsigned first, unsigned last)
{
    if (first > last || syscall(SYS_close_range, first, last, 0) == 0)
        return;
    /* Linux before 5.9. */
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) < 0)
        fail("close");
    for (unsigned fd = first; fd <= last && fd < limit.rlim_max && fd < (1u << 20); fd++)
        close((int)fd);
}

static bool is_passed_on(const struct options *options, int fd)
{
    if ((options->net == NET_TAP && options->tap == fd) || options->track == fd)
        return true;
    for (size_t i = 0; i < options->keep_count; i++)
        if (options->keep[i] == fd)
            return true;
    for (size_t i = 0; i < options->listener_count; i++)
        if (options->listeners[i].fd == fd)
            return true;
    return false;
}

void descriptors_close(const struct options *options)
{
    int last = 2;
    for (int fd = 3; fd <= 255; fd++) {
        if (!is_passed_on(options, fd))
            continue;
        if (fcntl(fd, F_SETFD, 0) < 0)
            fail("descriptor %d", fd);
        close_range_between((unsigned)last + 1, (unsigned)fd - 1);
        last = fd;
    }
    close_range_between((unsigned)last + 1, ~0u);
}

void listeners_make(const struct options *options)
{
    mode_t before = umask(077);
    for (size_t i = 0; i < options->listener_count; i++) {
        const char *path = options->listeners[i].path;
        struct sockaddr_un address = {.sun_family = AF_UNIX};
        if (strlen(path) >= sizeof address.sun_path) {
            errno = ENAMETOOLONG;
            fail("listen %s", path);
        }
        strcpy(address.sun_path, path);
        int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
        if (fd < 0 || bind(fd, (struct sockaddr *)&address, sizeof address) < 0 || listen(fd, BACKLOG) < 0)
            fail("listen %s", path);
        descriptors_place(fd, options->listeners[i].fd);
    }
    umask(before);
}
