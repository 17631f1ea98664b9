/* Decides which sockets of the kernel's list are connections that a fork must not keep. Pure. */
#ifndef FORKD_REMOTE_H
#define FORKD_REMOTE_H

#include <linux/inet_diag.h>
#include <netinet/tcp.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <sys/socket.h>

/* The states of connections. No process waits for one in TIME_WAIT, and some kernels cannot abort it. */
#define CONNECTION_STATES                                                                                    \
    (1u << TCP_ESTABLISHED | 1u << TCP_SYN_SENT | 1u << TCP_SYN_RECV | 1u << TCP_FIN_WAIT1 |               \
     1u << TCP_FIN_WAIT2 | 1u << TCP_CLOSE_WAIT | 1u << TCP_LAST_ACK | 1u << TCP_CLOSING)

/* 127.0.0.0/8, ::1, or 127.0.0.0/8 in an IPv6 socket. The address is in network order. */
static inline bool is_loopback(uint8_t family, const uint32_t address[4])
{
    static const uint8_t mapped[12] = {[10] = 0xFF, [11] = 0xFF}, one[16] = {[15] = 1};
    uint8_t b[16];
    memcpy(b, address, sizeof b);
    if (family == AF_INET6)
        return memcmp(b, one, sizeof one) == 0 || (memcmp(b, mapped, sizeof mapped) == 0 && b[12] == 127);
    return b[0] == 127;
}

static inline bool is_remote_connection(const struct inet_diag_msg *m)
{
    if (m->idiag_state > 31 || !(CONNECTION_STATES & 1u << m->idiag_state))
        return false;
    /* A connection with one end on the loopback has the other in the same machine. */
    if (is_loopback(m->idiag_family, m->id.idiag_src) || is_loopback(m->idiag_family, m->id.idiag_dst))
        return false;
    /*
     * A socket without an inode is not open in any process. Either a server has yet to accept it, or a process
     * has closed it: then no process waits for it, and in some kernels an abort would leave it for ever.
     */
    bool is_closed = m->idiag_state == TCP_FIN_WAIT1 || m->idiag_state == TCP_FIN_WAIT2 ||
                     m->idiag_state == TCP_LAST_ACK || m->idiag_state == TCP_CLOSING;
    return m->idiag_inode != 0 || !is_closed;
}

#endif
