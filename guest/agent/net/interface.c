/*
 * eth0: one fixed IPv4 address and one way out, the same in every machine, because each is alone on its segment.
 * A child therefore keeps its address and its neighbours.
 *
 * The network is up while the guest has its routes. Without them every dial fails at once with "Network is
 * unreachable". The interface itself stays up: to stop and start it takes an emulated child three times as long
 * and five times as much memory, and would take the address away from servers that use it.
 *
 * Everything goes through one descriptor that is open since boot. No step sends an announcement.
 */
#include <errno.h>
#include <net/if.h>
#include <net/route.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "agent.h"
#include "boot/boot.h"
#include "net/network.h"
#include "wire/link.h"

#define INTERFACE "eth0"
#define ADDRESS 0x0A00020Fu /* 10.0.2.15 */
#define NETMASK 0xFFFFFF00u
#define NETWORK (ADDRESS & NETMASK)
#define GATEWAY 0x0A000202u /* 10.0.2.2, also the name server */
#define ROUTES_MAX 8

static int control_fd = -1;
static bool is_up; /* as the agent has set it; part of a snapshot, so it costs nothing to find out */

static int start_interface(void)
{
    struct ifreq r = {.ifr_name = INTERFACE};
    if (ioctl(control_fd, SIOCGIFFLAGS, &r) < 0)
        return -1;
    r.ifr_flags |= IFF_UP;
    return ioctl(control_fd, SIOCSIFFLAGS, &r);
}

static struct sockaddr in_sockaddr(uint32_t address)
{
    struct sockaddr_in in = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(address)};
    struct sockaddr out;
    memcpy(&out, &in, sizeof out);
    return out;
}

static int set_address(unsigned long request, uint32_t value)
{
    struct ifreq r = {.ifr_name = INTERFACE, .ifr_addr = in_sockaddr(value)};
    return ioctl(control_fd, request, &r);
}

static int configure(void) { return set_address(SIOCSIFADDR, ADDRESS) < 0 ? -1 : set_address(SIOCSIFNETMASK, NETMASK); }

/* Adds or removes a route. Without a gateway it leads to the segment itself. */
static int change_route(unsigned long request, uint32_t target, uint32_t mask, uint32_t gateway)
{
    struct rtentry r = {
        .rt_dst = in_sockaddr(target),
        .rt_genmask = in_sockaddr(mask),
        .rt_gateway = in_sockaddr(gateway),
        .rt_flags = (unsigned short)(RTF_UP | (gateway ? RTF_GATEWAY : 0)),
        .rt_dev = (char[]){INTERFACE},
    };
    return ioctl(control_fd, request, &r);
}

static int add_default(void) { return change_route(SIOCADDRT, 0, 0, GATEWAY) < 0 && errno != EEXIST ? -1 : 0; }

/* The kernel accepts a gateway only if it has a route to it. When an interface starts, it adds that itself. */
static int add_routes(void)
{
    if (add_default() == 0)
        return 0;
    return change_route(SIOCADDRT, NETWORK, NETMASK, 0) < 0 ? -1 : add_default();
}

/* All routes to a target: there are two after a process in the guest has restarted the interface. */
static int remove_all(uint32_t target, uint32_t mask, uint32_t gateway)
{
    for (int i = 0; i < ROUTES_MAX; i++)
        if (change_route(SIOCDELRT, target, mask, gateway) < 0)
            return errno == ESRCH ? 0 : -1;
    return 0;
}

static int remove_routes(void) { return remove_all(0, 0, GATEWAY) < 0 ? -1 : remove_all(NETWORK, NETMASK, 0); }

bool interface_exists(void) { return control_fd >= 0; }

int interface_set(bool up)
{
    if (control_fd < 0) {
        errno = ENODEV;
        return -1;
    }
    if (up == is_up)
        return 0;
    int r = up ? add_routes() : remove_routes();
    /* A process in the guest may have stopped the interface. */
    if (r < 0 && up && start_interface() == 0)
        r = add_routes();
    if (r == 0)
        is_up = up;
    return r;
}

void interface_prepare(void)
{
    static const char resolver[] = "nameserver 10.0.2.2\noptions timeout:2 attempts:3\n";
    struct ifreq r = {.ifr_name = INTERFACE};
    control_fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (control_fd < 0)
        return;
    if (ioctl(control_fd, SIOCGIFFLAGS, &r) < 0) {
        close(control_fd);
        control_fd = -1;
        return;
    }
    /* The segment has no IPv6, and announcements of it would write to memory. The loopback keeps it. */
    boot_set("/proc/sys/net/ipv6/conf/default/disable_ipv6", "1");
    boot_set("/proc/sys/net/ipv6/conf/" INTERFACE "/disable_ipv6", "1");
    if (configure() < 0 || start_interface() < 0 || interface_set(true) < 0)
        boot_failed(INTERFACE, errno);
    publish_over("/run/forkd/resolv.conf", "/etc/resolv.conf", resolver, sizeof resolver - 1);
}

void interface_change(struct frame *f)
{
    struct fields all = {f->payload, f->payload + f->len};
    struct field one, up = {0};
    uint32_t destroyed;
    int more;
    while ((more = field_next(&all, &one)) > 0)
        if (one.key == 1)
            up = one;
    if (more < 0 || up.len != 1 || up.val[0] > 1) {
        link_error(f->id, EPROTO, "NETWORK", NULL);
        return;
    }
    int r = -1;
    if (!agent.machine)
        errno = EPERM; /* in --serve mode the network is the developer's */
    else
        r = interface_set(up.val[0]);
    if (r < 0) {
        link_error(f->id, errno, "network", NULL);
        return;
    }
    /* No answer arrives any more: a program that waits for one must not wait for ever. */
    if (!up.val[0])
        connections_destroy(&destroyed);
    link_ok(f->id);
}
