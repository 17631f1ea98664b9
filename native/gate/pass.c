/* Messages with a descriptor. */
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include "gate.h"

union control {
    struct cmsghdr header;
    char bytes[CMSG_SPACE(sizeof(int))];
};

ssize_t send_with(int to, const void *data, size_t bytes, int fd, int flags)
{
    union control control = {.bytes = {0}};
    struct iovec part = {(void *)data, bytes};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};
    if (fd >= 0) {
        message.msg_control = control.bytes;
        message.msg_controllen = sizeof control.bytes;
        control.header.cmsg_level = SOL_SOCKET;
        control.header.cmsg_type = SCM_RIGHTS;
        control.header.cmsg_len = CMSG_LEN(sizeof fd);
        memcpy(CMSG_DATA(&control.header), &fd, sizeof fd);
    }
    return sendmsg(to, &message, flags | MSG_NOSIGNAL);
}

ssize_t receive_with(int from, void *data, size_t bytes, int *fd)
{
    union control control = {.bytes = {0}};
    struct iovec part = {data, bytes};
    struct msghdr message = {
        .msg_iov = &part, .msg_iovlen = 1, .msg_control = control.bytes, .msg_controllen = sizeof control.bytes};
    *fd = -1;
    ssize_t n = recvmsg(from, &message, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
    if (n > 0 && CMSG_FIRSTHDR(&message) && control.header.cmsg_type == SCM_RIGHTS)
        memcpy(fd, CMSG_DATA(&control.header), sizeof *fd);
    return n;
}
