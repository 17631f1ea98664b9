/*
 * The network part of the agent on a real kernel: in its own network namespace, which ends with this program.
 * Where the kernel refuses such a namespace the test is skipped.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <net/if.h>
#include <poll.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "agent.h"
#include "boot/boot.h"
#include "net/network.h"
#include "wire/link.h"
#include "wire/loop.h"

#define MANY 300u

struct agent agent = {.machine = true};

static unsigned checks;

#define CHECK(what)                                                                                    \
    do {                                                                                               \
        checks++;                                                                                      \
        if (!(what)) {                                                                                 \
            fprintf(stderr, "%s:%d: failed: %s (%s)\n", __FILE__, __LINE__, #what, strerror(errno));   \
            exit(1);                                                                                   \
        }                                                                                              \
    } while (0)

/* The parts of the agent around it. */
static int last_reply = -1; /* an errno, or 0 for OK */
void link_ok(uint32_t id) { last_reply = id == 5 ? 0 : -1; }
void link_error(uint32_t id, int err, const char *step, const char *subject)
{
    (void)subject, (void)step;
    last_reply = id == 5 ? err : -1;
}
void boot_set(const char *path, const char *value) { (void)path, (void)value; }
void publish_over(const char *file, const char *place, const char *text, size_t n)
{
    (void)file, (void)n;
    CHECK(strcmp(place, "/etc/resolv.conf") == 0 && strstr(text, "nameserver 10.0.2.2\n"));
}
_Noreturn void boot_failed(const char *step, int err)
{
    fprintf(stderr, "boot failed: %s: %s\n", step, strerror(err));
    exit(1);
}
uint64_t now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}

static void put(const char *path, const char *text)
{
    int fd = open(path, O_WRONLY);
    CHECK(fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text));
    close(fd);
}

/* False where this user may not have a namespace. */
static bool enter_namespace(void)
{
    char map[64];
    unsigned uid = getuid(), gid = getgid();
    if (unshare(CLONE_NEWUSER | CLONE_NEWNET) < 0)
        return false;
    put("/proc/self/setgroups", "deny");
    snprintf(map, sizeof map, "0 %u 1", uid);
    put("/proc/self/uid_map", map);
    snprintf(map, sizeof map, "0 %u 1", gid);
    put("/proc/self/gid_map", map);
    struct ifreq r = {.ifr_name = "lo", .ifr_flags = IFF_UP | IFF_RUNNING};
    int fd = socket(AF_INET, SOCK_DGRAM, 0);
    CHECK(fd >= 0 && ioctl(fd, SIOCSIFFLAGS, &r) == 0);
    /* Another address of the machine: the kernel cannot tell a connection to it from one to another machine. */
    struct ifreq alias = {.ifr_name = "lo:1"};
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = inet_addr("203.0.113.9")};
    memcpy(&alias.ifr_addr, &a, sizeof a);
    CHECK(ioctl(fd, SIOCSIFADDR, &alias) == 0);
    close(fd);
    return true;
}

static void address(struct sockaddr_storage *to, socklen_t *len, const char *text, uint16_t port)
{
    memset(to, 0, sizeof *to);
    if (strchr(text, ':')) {
        struct sockaddr_in6 *six = (void *)to;
        six->sin6_family = AF_INET6;
        six->sin6_port = port;
        *len = sizeof *six;
        CHECK(inet_pton(AF_INET6, text, &six->sin6_addr) == 1);
    } else {
        struct sockaddr_in *four = (void *)to;
        four->sin_family = AF_INET;
        four->sin_port = port;
        *len = sizeof *four;
        CHECK(inet_pton(AF_INET, text, &four->sin_addr) == 1);
    }
}

/* The port is in network order. */
static int listen_at(const char *text, uint16_t *port)
{
    struct sockaddr_storage a;
    socklen_t len;
    address(&a, &len, text, 0);
    int fd = socket(a.ss_family, SOCK_STREAM, 0);
    CHECK(fd >= 0 && bind(fd, (void *)&a, len) == 0 && listen(fd, 1024) == 0);
    CHECK(getsockname(fd, (void *)&a, &len) == 0);
    *port = a.ss_family == AF_INET ? ((struct sockaddr_in *)&a)->sin_port : ((struct sockaddr_in6 *)&a)->sin6_port;
    return fd;
}

static int dial(const char *text, uint16_t port)
{
    struct sockaddr_storage a;
    socklen_t len;
    address(&a, &len, text, port);
    int fd = socket(a.ss_family, SOCK_STREAM, 0);
    CHECK(fd >= 0);
    if (connect(fd, (void *)&a, len) == 0)
        return fd;
    int err = errno;
    close(fd);
    errno = err;
    return -1;
}

/* The error that a process gets when it reads from the connection, 0 if it would wait. */
static int error_of(int fd)
{
    char byte;
    ssize_t n = recv(fd, &byte, 1, MSG_DONTWAIT);
    return n >= 0 ? -1 : errno == EAGAIN ? 0 : errno;
}

/* Both ends are in this machine, so the reset that the first one sends can reach the second one before its turn. */
static bool is_cut(int fd)
{
    int err = error_of(fd);
    return err == ECONNABORTED || err == ECONNRESET;
}

static void test_one_pair(const char *where, bool is_aborted)
{
    uint16_t port;
    uint32_t destroyed;
    int server = listen_at(where, &port), near = dial(where, port);
    CHECK(near >= 0);
    int far = accept(server, NULL, NULL);
    CHECK(far >= 0);
    CHECK(connections_destroy(&destroyed) == 0);
    if (is_aborted)
        CHECK(destroyed >= 1 && destroyed <= 2 && is_cut(near) && is_cut(far));
    else
        CHECK(destroyed == 0 && error_of(near) == 0 && error_of(far) == 0);
    /* The server still accepts. */
    close(near);
    close(far);
    near = dial(where, port);
    CHECK(near >= 0 && (far = accept(server, NULL, NULL)) >= 0 && error_of(far) == 0);
    close(near);
    close(far);
    close(server);
}

/* More than fit in one chunk of the list, half of them not accepted yet. */
static void test_many(void)
{
    static int near[MANY], far[MANY];
    uint16_t port;
    uint32_t destroyed;
    int server = listen_at("203.0.113.9", &port);
    for (unsigned i = 0; i < MANY; i++)
        CHECK((near[i] = dial("203.0.113.9", port)) >= 0);
    for (unsigned i = 0; i < MANY / 2; i++)
        CHECK((far[i] = accept(server, NULL, NULL)) >= 0);
    CHECK(connections_destroy(&destroyed) == 0 && destroyed >= MANY && destroyed <= 2 * MANY);
    for (unsigned i = MANY / 2; i < MANY; i++)
        CHECK((far[i] = accept(server, NULL, NULL)) >= 0);
    for (unsigned i = 0; i < MANY; i++) {
        CHECK(is_cut(near[i]) && is_cut(far[i]));
        close(near[i]);
        close(far[i]);
    }
    CHECK(connections_destroy(&destroyed) == 0 && destroyed == 0);
    close(server);
}

/* A process has closed it and its peer has not: no process waits for it, and it does not count. */
static void test_closed(void)
{
    uint16_t port;
    uint32_t destroyed;
    int server = listen_at("203.0.113.9", &port), near = dial("203.0.113.9", port), far = accept(server, NULL, NULL);
    CHECK(near >= 0 && far >= 0);
    close(near);
    CHECK(connections_destroy(&destroyed) == 0 && destroyed == 1);
    CHECK(connections_destroy(&destroyed) == 0 && destroyed == 0);
    close(far);
    close(server);
}

static int network(uint8_t up)
{
    uint8_t payload[16];
    struct frame f = {.type = FT_NETWORK, .id = 5, .payload = payload};
    f.len = (uint32_t)(field_put_u8(payload, 1, up) - payload);
    last_reply = -1;
    interface_change(&f);
    return last_reply;
}

static unsigned routes(void)
{
    char line[256];
    unsigned n = 0;
    FILE *f = fopen("/proc/thread-self/net/route", "r");
    CHECK(f != NULL);
    while (fgets(line, sizeof line, f))
        n += strncmp(line, "eth0\t", 5) == 0;
    fclose(f);
    return n;
}

static void set_flags(bool up)
{
    struct ifreq r = {.ifr_name = "eth0", .ifr_flags = up ? IFF_UP : 0};
    int fd = socket(AF_INET, SOCK_DGRAM, 0);
    CHECK(ioctl(fd, SIOCSIFFLAGS, &r) == 0);
    close(fd);
}

static void test_interface(void)
{
    interface_prepare();
    CHECK(!interface_exists() && network(1) == ENODEV && network(0) == ENODEV);
    if (system("ip link add eth0 type veth peer name peer0 && ip link set peer0 up") != 0) {
        puts("network: no interface of the kind veth here, skipped");
        return;
    }
    interface_prepare();
    CHECK(interface_exists() && routes() == 2);
    CHECK(network(1) == 0 && routes() == 2);
    uint16_t port;
    int server = listen_at("10.0.2.15", &port), near = dial("10.0.2.15", port);
    CHECK(near >= 0);
    CHECK(network(0) == 0 && routes() == 0 && is_cut(near));
    CHECK(dial("1.2.3.4", 80) < 0 && errno == ENETUNREACH);
    CHECK(dial("10.0.2.2", 53) < 0 && errno == ENETUNREACH);
    /* The machine keeps its own address. */
    close(near);
    CHECK((near = dial("10.0.2.15", port)) >= 0);
    for (int i = 0; i < 3; i++) {
        CHECK(network(1) == 0 && routes() == 2);
        CHECK(network(0) == 0 && routes() == 0);
    }
    /* A process in the guest stops the interface. */
    set_flags(false);
    CHECK(network(1) == 0 && routes() == 2);
    set_flags(false);
    CHECK(network(0) == 0 && routes() == 0);
    CHECK(network(1) == 0 && network(0) == 0);
    set_flags(false);
    set_flags(true); /* the kernel adds a route again */
    CHECK(routes() == 1 && network(1) == 0 && routes() == 2 && network(0) == 0 && routes() == 0);
    close(near);
    close(server);
}

int main(void)
{
    uint32_t destroyed;
    struct rlimit files;
    getrlimit(RLIMIT_NOFILE, &files);
    files.rlim_cur = files.rlim_max;
    setrlimit(RLIMIT_NOFILE, &files);
    CHECK(connections_destroy(&destroyed) < 0 && destroyed == 0); /* not prepared yet */
    if (!enter_namespace()) {
        puts("network: no network namespace here, skipped");
        return 0;
    }
    connections_prepare();
    if (connections_destroy(&destroyed) < 0) {
        printf("network: connections cannot be aborted here (%s), skipped\n", strerror(errno));
    } else {
        test_one_pair("203.0.113.9", true);
        test_one_pair("::ffff:203.0.113.9", true);
        test_one_pair("127.0.0.1", false);
        test_one_pair("127.9.9.9", false);
        test_one_pair("::1", false);
        test_one_pair("::ffff:127.0.0.1", false);
        test_many();
        test_closed();
    }
    test_interface();
    printf("network: %u checks passed\n", checks);
    return 0;
}
