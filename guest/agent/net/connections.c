/*
 * Aborts TCP connections after a fork. Source and child would otherwise both hold each connection, but the peer
 * knows only the one of the source: a program in the child that waits for its peer would wait for ever. An
 * aborted connection fails at once with ECONNABORTED, so that the program connects again.
 *
 * The kernel lists its sockets (NETLINK_SOCK_DIAG) and aborts those that the agent names (SOCK_DESTROY). The
 * descriptors are open since boot, and the buffers are small: the kernel allocates its own of the same size.
 */
#include <errno.h>
#include <linux/inet_diag.h>
#include <linux/netlink.h>
#include <linux/sock_diag.h>
#include <netinet/in.h>
#include <stdbool.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "net/network.h"
#include "net/remote.h"
#include "wire/loop.h"

#define CHUNK 4096u
/* Sockets that close while the kernel lists them can hide others from the list, so it is read again. */
#define PASSES_MAX 64
#define TIME_MAX_MS 2000

struct request {
    struct nlmsghdr head;
    struct inet_diag_req_v2 body;
};

static int list_fd = -1, destroy_fd = -1;
static int unsupported = ENOSYS; /* why this kernel cannot do it, or 0 */
static uint32_t sequence;
static uint8_t chunk[CHUNK] __attribute__((aligned(8)));
/* One for each socket that fits in a chunk, because they are at least as long as a request there. */
static struct request batch[CHUNK / sizeof(struct inet_diag_msg)];

/* What happened to the sockets of one pass. */
struct tally {
    uint32_t destroyed, failed;
    int err;
};

static int open_netlink(void)
{
    return socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC | SOCK_NONBLOCK, NETLINK_SOCK_DIAG);
}

static struct request new_request(uint16_t type, uint16_t flags, uint8_t family)
{
    return (struct request){
        .head = {.nlmsg_len = sizeof(struct request), .nlmsg_type = type, .nlmsg_flags = NLM_F_REQUEST | flags},
        .body = {.sdiag_family = family, .sdiag_protocol = IPPROTO_TCP, .idiag_states = CONNECTION_STATES},
    };
}

/* Aborts the first n sockets of the batch. The kernel replies only to those that it could not abort. */
static void destroy_batch(unsigned n, struct tally *t)
{
    static uint8_t errors[512] __attribute__((aligned(8)));
    if (n == 0)
        return;
    t->destroyed += n;
    if (send(destroy_fd, batch, n * sizeof batch[0], 0) < 0) {
        t->destroyed -= n;
        t->failed += n;
        t->err = errno;
        return;
    }
    ssize_t len;
    while ((len = recv(destroy_fd, errors, sizeof errors, 0)) > 0) {
        const struct nlmsghdr *h = (const void *)errors;
        const struct nlmsgerr *e = (const void *)(errors + NLMSG_HDRLEN);
        if ((size_t)len < NLMSG_HDRLEN + sizeof e->error || h->nlmsg_type != NLMSG_ERROR || e->error == 0)
            continue;
        t->destroyed--;
        if (e->error == -ENOENT)
            continue; /* it closed in the meantime */
        t->failed++;
        t->err = -e->error;
    }
    if (len < 0 && errno != EAGAIN) {
        t->failed++;
        t->err = errno;
    }
}

/* Handles one chunk of the list. 1 at its end, 0 if more follows, -1 with errno. */
static int read_chunk(ssize_t len, struct tally *t)
{
    unsigned n = 0;
    int left = (int)len, end = 0;
    for (struct nlmsghdr *h = (void *)chunk; !end && NLMSG_OK(h, left); h = NLMSG_NEXT(h, left)) {
        int err = 0;
        if (h->nlmsg_seq != sequence)
            continue;
        if (h->nlmsg_type == NLMSG_DONE || h->nlmsg_type == NLMSG_ERROR) {
            /* Both begin with an errno; the end of an empty list of an unknown kind has one, too. */
            if (h->nlmsg_len >= NLMSG_LENGTH(sizeof err))
                memcpy(&err, NLMSG_DATA(h), sizeof err);
            end = err < 0 ? -1 : 1;
            if (err < 0)
                errno = -err;
        } else if (h->nlmsg_len >= NLMSG_LENGTH(sizeof(struct inet_diag_msg))) {
            const struct inet_diag_msg *m = NLMSG_DATA(h);
            if (!is_remote_connection(m))
                continue;
            batch[n] = new_request(SOCK_DESTROY, 0, m->idiag_family);
            batch[n++].body.id = m->id;
        }
    }
    int err = errno;
    destroy_batch(n, t);
    errno = err;
    return end;
}

/* One pass over the sockets of a family. */
static int pass(uint8_t family, struct tally *t)
{
    struct request list = new_request(SOCK_DIAG_BY_FAMILY, NLM_F_DUMP, family);
    list.head.nlmsg_seq = ++sequence;
    if (send(list_fd, &list, sizeof list, 0) < 0)
        return -1;
    for (;;) {
        /* The kernel has the next chunk ready or makes it now: this never waits. */
        ssize_t len = recv(list_fd, chunk, sizeof chunk, 0);
        if (len < 0)
            return -1;
        int end = read_chunk(len, t);
        if (end)
            return end > 0 ? 0 : -1;
    }
}

static int destroy_family(uint8_t family, uint32_t *destroyed)
{
    uint64_t until = now_ms() + TIME_MAX_MS;
    for (int i = 0; i < PASSES_MAX && now_ms() <= until; i++) {
        struct tally t = {0};
        if (pass(family, &t) < 0)
            return -1;
        *destroyed += t.destroyed;
        if (t.failed) {
            errno = t.err;
            return -1;
        }
        if (t.destroyed == 0)
            return 0;
    }
    errno = ETIMEDOUT;
    return -1;
}

int connections_destroy(uint32_t *destroyed)
{
    *destroyed = 0;
    if (unsupported) {
        errno = unsupported;
        return -1;
    }
    if (destroy_family(AF_INET, destroyed) < 0)
        return -1;
    /* A kernel without IPv6 has no such sockets. */
    return destroy_family(AF_INET6, destroyed) < 0 && errno != ENOENT ? -1 : 0;
}

/* The kernel does not find the socket that is named here if it can abort sockets at all. */
static int probe(void)
{
    struct request r = new_request(SOCK_DESTROY, NLM_F_ACK, AF_INET);
    struct tally none = {0};
    if (pass(AF_INET, &none) < 0)
        return errno;
    if (send(destroy_fd, &r, sizeof r, 0) < 0)
        return errno;
    ssize_t len = recv(destroy_fd, chunk, sizeof chunk, 0);
    const struct nlmsgerr *e = (const void *)(chunk + NLMSG_HDRLEN);
    if (len < (ssize_t)(NLMSG_HDRLEN + sizeof e->error))
        return len < 0 ? errno : EPROTO;
    return e->error == -ENOENT ? 0 : e->error < 0 ? -e->error : EPROTO;
}

void connections_prepare(void)
{
    list_fd = open_netlink();
    destroy_fd = open_netlink();
    unsupported = list_fd < 0 || destroy_fd < 0 ? errno : probe();
}
