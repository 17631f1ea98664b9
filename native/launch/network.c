/* The network of a machine: a namespace in which every address is local, so that nothing leaves it. */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/if_addr.h>
#include <linux/if_link.h>
#include <linux/if_tun.h>
#include <linux/rtnetlink.h>
#include <net/if.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "launch.h"

#define TAP_NAME "tap0"
#define LOOPBACK_INDEX 1

/*
 * Address and MAC of slirp's gateway. Guests keep them in their neighbour cache, so a snapshot restores
 * with a tap and with slirp.
 */
#define GATEWAY "10.0.2.2"
#define GUEST "10.0.2.15"
static const uint8_t gateway_mac[6] = {0x52, 0x55, 0x0a, 0x00, 0x02, 0x02};

/*
 * New namespaces inherit IPv4 settings of the host. Where /proc/sys is read-only, as in containers, the
 * namespace still leads nowhere: the settings only reduce what the guest can talk to in it.
 */
static void set(const char *name, const char *value)
{
    int fd = open(name, O_WRONLY | O_CLOEXEC);
    if (fd < 0 && (errno == ENOENT || errno == EROFS || errno == EACCES))
        return;
    if (fd < 0 || write(fd, value, strlen(value)) < 0)
        fail("%s", name);
    close(fd);
}

void network_settings(void)
{
    set("/proc/sys/net/ipv6/conf/all/disable_ipv6", "1");
    set("/proc/sys/net/ipv6/conf/default/disable_ipv6", "1");
    /* Every address is local and would answer. */
    set("/proc/sys/net/ipv4/icmp_echo_ignore_all", "1");
    /* A refused datagram is reported each time, so that clients do not wait. */
    set("/proc/sys/net/ipv4/icmp_ratelimit", "0");
    set("/proc/sys/net/ipv4/ip_forward", "0");
    set("/proc/sys/net/ipv4/conf/all/rp_filter", "0");
    set("/proc/sys/net/ipv4/conf/default/rp_filter", "0");
    /* A guest must not write to the log of the host. */
    set("/proc/sys/net/ipv4/conf/all/log_martians", "0");
    set("/proc/sys/net/ipv4/conf/default/log_martians", "0");
    /* A guest must not use a source address other than its own or dial the loopback addresses. */
    set("/proc/sys/net/ipv4/conf/all/accept_local", "0");
    set("/proc/sys/net/ipv4/conf/default/accept_local", "0");
    set("/proc/sys/net/ipv4/conf/all/route_localnet", "0");
    set("/proc/sys/net/ipv4/conf/default/route_localnet", "0");
}

int tap_make(void)
{
    struct ifreq request = {.ifr_flags = IFF_TAP | IFF_NO_PI};
    strcpy(request.ifr_name, TAP_NAME);
    int fd = open("/dev/net/tun", O_RDWR | O_CLOEXEC);
    if (fd < 0)
        fail("/dev/net/tun");
    if (ioctl(fd, TUNSETIFF, &request) < 0)
        fail("tap");
    /*
     * Closing the descriptor then does not remove the interface, for which the exit of the VMM would have to
     * wait. It goes with the namespace.
     */
    if (ioctl(fd, TUNSETPERSIST, 1) < 0)
        fail("tap persist");
    return fd;
}

static void link_up(struct netlink *netlink, unsigned index, const uint8_t *mac)
{
    struct ifinfomsg *link = netlink_message(netlink, RTM_NEWLINK, 0, sizeof *link);
    link->ifi_index = (int)index;
    link->ifi_flags = IFF_UP;
    link->ifi_change = IFF_UP;
    if (mac)
        netlink_attribute(netlink, IFLA_ADDRESS, mac, sizeof gateway_mac);
}

/*
 * The guest is the only address behind the tap. In a larger network it could fill the table of neighbours, which
 * all namespaces of the host share.
 */
static void add_gateway_address(struct netlink *netlink, unsigned index)
{
    struct ifaddrmsg *address = netlink_message(netlink, RTM_NEWADDR, NLM_F_CREATE | NLM_F_EXCL, sizeof *address);
    struct in_addr gateway = {.s_addr = inet_addr(GATEWAY)};
    struct in_addr guest = {.s_addr = inet_addr(GUEST)};
    address->ifa_family = AF_INET;
    address->ifa_prefixlen = 32;
    address->ifa_index = index;
    netlink_attribute(netlink, IFA_LOCAL, &gateway, sizeof gateway);
    netlink_attribute(netlink, IFA_ADDRESS, &guest, sizeof guest);
}

/*
 * In the main table, the guest's address stays the more specific route: answers leave by the tap, and the
 * kernel drops packets from the guest with a foreign source.
 */
static void add_local_route(struct netlink *netlink)
{
    struct rtmsg *route = netlink_message(netlink, RTM_NEWROUTE, NLM_F_CREATE | NLM_F_EXCL, sizeof *route);
    uint32_t loopback = LOOPBACK_INDEX;
    route->rtm_family = AF_INET;
    route->rtm_table = RT_TABLE_MAIN;
    route->rtm_protocol = RTPROT_STATIC;
    route->rtm_scope = RT_SCOPE_HOST;
    route->rtm_type = RTN_LOCAL;
    netlink_attribute(netlink, RTA_OIF, &loopback, sizeof loopback);
}

void network_up(bool tap)
{
    struct netlink netlink;
    netlink_open(&netlink, NETLINK_ROUTE);
    link_up(&netlink, LOOPBACK_INDEX, NULL);
    if (tap) {
        unsigned index = if_nametoindex(TAP_NAME);
        if (index == 0)
            fail("tap index");
        link_up(&netlink, index, gateway_mac);
        add_gateway_address(&netlink, index);
    }
    add_local_route(&netlink);
    errno = netlink_send(&netlink);
    if (errno)
        fail("network");
}
