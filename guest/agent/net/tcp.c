/*
 * TCP stream: descriptor 0 to the peer, the peer to descriptor 1. Each direction closes separately (half
 * close); the operation exits when both are closed.
 *
 * Names are looked up only in /etc/hosts: the purpose is to reach services in the guest itself.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "util.h"
#include "files/builtin.h"

#define CHUNK 65536
#define HOSTS_MAX 65536

/* One direction: bytes that are read and not yet written. */
struct flow {
    int from, to;
    size_t at, len;
    bool open;
    char buf[CHUNK];
};

static int dial(int family, const char *address, uint16_t port)
{
    struct sockaddr_in a4 = {.sin_family = AF_INET, .sin_port = htons(port)};
    struct sockaddr_in6 a6 = {.sin6_family = AF_INET6, .sin6_port = htons(port)};
    void *raw = family == AF_INET ? (void *)&a4.sin_addr : (void *)&a6.sin6_addr;
    if (inet_pton(family, address, raw) != 1) {
        errno = EINVAL;
        return -1;
    }
    int fd = socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    struct sockaddr *to = family == AF_INET ? (struct sockaddr *)&a4 : (struct sockaddr *)&a6;
    if (fd >= 0 && connect(fd, to, family == AF_INET ? sizeof a4 : sizeof a6) == 0)
        return fd;
    int err = errno;
    if (fd >= 0)
        close(fd);
    errno = err;
    return -1;
}

/* Connects to the first address of a name in /etc/hosts that accepts. */
static int dial_name(const char *name, uint16_t port)
{
    static char text[HOSTS_MAX];
    char *rest = text, *line;
    int err = ENOENT;
    if (read_whole("/etc/hosts", text, sizeof text) < 0)
        return -1;
    while ((line = strsep(&rest, "\n"))) {
        line[strcspn(line, "#")] = 0;
        char *save, *address = strtok_r(line, " \t\r", &save), *alias;
        while (address && (alias = strtok_r(NULL, " \t\r", &save))) {
            if (strcasecmp(alias, name) != 0)
                continue;
            int fd = dial(strchr(address, ':') ? AF_INET6 : AF_INET, address, port);
            if (fd >= 0)
                return fd;
            err = errno;
        }
    }
    errno = err;
    return -1;
}

static int dial_any(const char *host, uint16_t port)
{
    if (!host || !*host || strcmp(host, "localhost") == 0) {
        int fd = dial(AF_INET, "127.0.0.1", port);
        if (fd >= 0)
            return fd;
        int err = errno;
        fd = dial(AF_INET6, "::1", port);
        if (fd < 0)
            errno = err; /* the error of the first address is more useful */
        return fd;
    }
    int fd = dial(AF_INET, host, port);
    if (fd < 0 && errno == EINVAL)
        fd = dial(AF_INET6, host, port);
    if (fd < 0 && errno == EINVAL)
        fd = dial_name(host, port);
    return fd;
}

/* Moves as many bytes as possible now: 0, or -1 with errno. At the end of input it closes the direction. */
static int move(struct flow *f, short in, short out, bool to_peer)
{
    if (f->len == 0 && in) {
        ssize_t n = read(f->from, f->buf, CHUNK);
        if (n < 0)
            return errno == EAGAIN || errno == EINTR ? 0 : -1;
        if (n == 0) {
            f->open = false;
            if (to_peer)
                shutdown(f->to, SHUT_WR);
            else
                close(f->to);
            return 0;
        }
        f->at = 0;
        f->len = (size_t)n;
        out = POLLOUT; /* write at once, without another poll */
    }
    if (f->len > 0 && out) {
        ssize_t n = write(f->to, f->buf + f->at, f->len);
        if (n < 0)
            return errno == EAGAIN || errno == EINTR ? 0 : -1;
        f->at += (size_t)n;
        f->len -= (size_t)n;
    }
    return 0;
}

int tcp_connect(const struct start *s)
{
    static struct flow up, down;
    char where[300];
    int yes = 1, fd = dial_any(s->path, s->port);
    snprintf(where, sizeof where, "%.255s:%u", s->path ? s->path : "127.0.0.1", s->port);
    if (fd < 0)
        return report_error("connect to", where);
    /* With this line the host can distinguish a connection that closes at once from a refused one. */
    if (write(2, "connected\n", 10) < 0)
        return report_error("report the connection to", where);
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
    fcntl(fd, F_SETFL, O_NONBLOCK);
    fcntl(0, F_SETFL, O_NONBLOCK);
    fcntl(1, F_SETFL, O_NONBLOCK);
    up.from = 0, up.to = fd, up.open = true;
    down.from = fd, down.to = 1, down.open = true;
    while (up.open || down.open) {
        struct pollfd p[4] = {
            {up.open && up.len == 0 ? 0 : -1, POLLIN, 0},
            {up.open && up.len > 0 ? fd : -1, POLLOUT, 0},
            {down.open && down.len == 0 ? fd : -1, POLLIN, 0},
            {down.open && down.len > 0 ? 1 : -1, POLLOUT, 0},
        };
        if (poll(p, 4, -1) < 0 && errno != EINTR)
            return report_error("wait for", where);
        if ((up.open && move(&up, p[0].revents, p[1].revents, true) < 0) ||
            (down.open && move(&down, p[2].revents, p[3].revents, false) < 0))
            return report_error("exchange data with", where);
    }
    return 0;
}
