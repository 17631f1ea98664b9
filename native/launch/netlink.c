/* Messages for the kernel. */
#include <errno.h>
#include <linux/netlink.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "launch.h"

void netlink_open(struct netlink *netlink, int protocol)
{
    netlink->used = 0;
    netlink->sequence = 0;
    netlink->fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, protocol);
    netlink->err = netlink->fd < 0 ? errno : 0;
}

/* Zeroed, aligned bytes at the end. */
static void *append(struct netlink *netlink, size_t bytes)
{
    size_t aligned = NLMSG_ALIGN(bytes);
    if (aligned > sizeof netlink->data - netlink->used) {
        errno = ENOBUFS;
        fail("netlink");
    }
    void *at = netlink->data + netlink->used;
    memset(at, 0, aligned);
    netlink->used += aligned;
    return at;
}

static struct nlmsghdr *last_message(struct netlink *netlink)
{
    struct nlmsghdr *header = (void *)netlink->data;
    while ((uint8_t *)header + NLMSG_ALIGN(header->nlmsg_len) < netlink->data + netlink->used)
        header = (void *)((uint8_t *)header + NLMSG_ALIGN(header->nlmsg_len));
    return header;
}

void *netlink_message(struct netlink *netlink, uint16_t type, uint16_t flags, size_t bytes)
{
    struct nlmsghdr *header = append(netlink, NLMSG_LENGTH(bytes));
    header->nlmsg_len = (uint32_t)NLMSG_LENGTH(bytes);
    header->nlmsg_type = type;
    header->nlmsg_flags = (uint16_t)(NLM_F_REQUEST | flags);
    header->nlmsg_seq = netlink->sequence++;
    return NLMSG_DATA(header);
}

void netlink_attribute(struct netlink *netlink, uint16_t type, const void *value, size_t bytes)
{
    struct nlmsghdr *message = last_message(netlink);
    struct nlattr *attribute = append(netlink, NLA_HDRLEN + bytes);
    attribute->nla_type = type;
    attribute->nla_len = (uint16_t)(NLA_HDRLEN + bytes);
    if (bytes > 0)
        memcpy((uint8_t *)attribute + NLA_HDRLEN, value, bytes);
    message->nlmsg_len = (uint32_t)(netlink->data + netlink->used - (uint8_t *)message);
}

size_t netlink_enter(struct netlink *netlink, uint16_t type)
{
    size_t at = netlink->used;
    netlink_attribute(netlink, type | NLA_F_NESTED, NULL, 0);
    return at;
}

void netlink_leave(struct netlink *netlink, size_t at)
{
    struct nlattr *attribute = (void *)(netlink->data + at);
    attribute->nla_len = (uint16_t)(netlink->used - at);
}

/* The kernel answers before send() returns. No message asks for an acknowledgement: answers are errors. */
int netlink_send(struct netlink *netlink)
{
    struct sockaddr_nl kernel = {.nl_family = AF_NETLINK};
    uint8_t answer[4096];
    int err = netlink->err;
    if (err)
        return err;
    if (sendto(netlink->fd, netlink->data, netlink->used, 0, (struct sockaddr *)&kernel, sizeof kernel) < 0)
        err = errno;
    ssize_t n = err ? 0 : recv(netlink->fd, answer, sizeof answer, MSG_DONTWAIT);
    if (n < 0 && errno != EAGAIN)
        err = errno;
    struct nlmsghdr *header = (void *)answer;
    for (int left = (int)n; left > 0 && NLMSG_OK(header, (unsigned)left); header = NLMSG_NEXT(header, left)) {
        const struct nlmsgerr *message = NLMSG_DATA(header);
        if (header->nlmsg_type == NLMSG_ERROR && message->error < 0 && err == 0)
            err = -message->error;
    }
    close(netlink->fd);
    return err;
}
