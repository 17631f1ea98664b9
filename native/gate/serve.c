/* Serves one request in its own process, because a process cannot leave a user namespace again. */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "gate.h"

#define BACKLOG 1024
#define BIND_TRIES 5
#define BIND_WAIT_US 2000
/* Of the listener; accepted sockets inherit them. A guest must not tie up more kernel memory per connection. */
#define BUFFER_BYTES (256 * 1024)

static int results;

_Noreturn static void fail(int err, const char *format, ...)
{
    struct result result = {.err = err ? err : EIO};
    va_list args;
    va_start(args, format);
    vsnprintf(result.text, sizeof result.text, format, args);
    va_end(args);
    send_with(results, &result, sizeof result, -1, 0);
    _exit(1);
}

/* Field 22 of stat. The second field is a name that may contain spaces and parentheses. */
static uint64_t start_time_of(int process)
{
    char text[1024];
    int fd = openat(process, "stat", O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? -1 : read(fd, text, sizeof text - 1);
    if (n <= 0)
        fail(ESRCH, "the process has exited");
    close(fd);
    text[n] = 0;
    const char *at = strrchr(text, ')');
    for (int field = 2; at && field < 22; field++)
        at = strchr(at + 1, ' ');
    return at ? strtoull(at + 1, NULL, 10) : 0;
}

static int open_namespace(int process, const char *name)
{
    int fd = openat(process, name, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        fail(errno == ENOENT ? ESRCH : errno, "cannot open %s of the process: %s", name, strerror(errno));
    return fd;
}

static bool is_ours(int namespace, const char *path)
{
    struct stat theirs, ours;
    if (fstat(namespace, &theirs) < 0 || stat(path, &ours) < 0)
        fail(errno, "cannot compare %s: %s", path, strerror(errno));
    return theirs.st_dev == ours.st_dev && theirs.st_ino == ours.st_ino;
}

static void enter(const struct request *request)
{
    char path[32];
    snprintf(path, sizeof path, "/proc/%d", request->pid);
    /* The directory stands for this process, also if another one gets its pid. */
    int process = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (process < 0)
        fail(ESRCH, "the process has exited");
    int net = open_namespace(process, "ns/net");
    int user = open_namespace(process, "ns/user");
    if (start_time_of(process) != request->start_time)
        fail(ESRCH, "the process has exited and another one has its pid");
    /* Otherwise a listener would take connections of the host. */
    if (is_ours(net, "/proc/self/ns/net"))
        fail(EINVAL, "the process is in the network namespace of the gate");
    if (!is_ours(user, "/proc/self/ns/user") && setns(user, CLONE_NEWUSER) < 0)
        fail(errno, "cannot enter the user namespace: %s", strerror(errno));
    if (setns(net, CLONE_NEWNET) < 0)
        fail(errno, "cannot enter the network namespace: %s", strerror(errno));
}

static int make_socket(int type)
{
    int fd = socket(AF_INET, type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        fail(errno, "cannot make a socket: %s", strerror(errno));
    return fd;
}

static void option(int fd, int level, int name, int value)
{
    if (setsockopt(fd, level, name, &value, sizeof value) < 0)
        fail(errno, "cannot set an option of the socket: %s", strerror(errno));
}

static void bind_to(int fd, struct in_addr address, uint16_t port)
{
    struct sockaddr_in here = {.sin_family = AF_INET, .sin_port = htons(port), .sin_addr = address};
    for (int left = BIND_TRIES; bind(fd, (struct sockaddr *)&here, sizeof here) < 0; left--) {
        if (errno != EADDRINUSE || left == 0)
            fail(errno, "cannot bind port %u: %s", port, strerror(errno));
        /* Another child of the gate may not have closed its copy of the last socket yet. */
        usleep(BIND_WAIT_US);
    }
}

static int listener(uint16_t port)
{
    int fd = make_socket(SOCK_STREAM);
    struct in_addr any = {INADDR_ANY};
    option(fd, SOL_SOCKET, SO_REUSEADDR, 1);
    option(fd, IPPROTO_IP, IP_TRANSPARENT, 1);
    option(fd, SOL_SOCKET, SO_RCVBUF, BUFFER_BYTES);
    option(fd, SOL_SOCKET, SO_SNDBUF, BUFFER_BYTES);
    bind_to(fd, any, port);
    if (listen(fd, BACKLOG) < 0)
        fail(errno, "cannot listen on port %u: %s", port, strerror(errno));
    return fd;
}

static int datagram(struct in_addr address, uint16_t port)
{
    int fd = make_socket(SOCK_DGRAM);
    option(fd, IPPROTO_IP, IP_TRANSPARENT, 1);
    bind_to(fd, address, port);
    return fd;
}

static int connection(const struct request *request)
{
    struct sockaddr_in there = {
        .sin_family = AF_INET, .sin_port = htons(request->ports[0]), .sin_addr = request->address};
    int fd = make_socket(SOCK_STREAM);
    if (connect(fd, (struct sockaddr *)&there, sizeof there) == 0)
        return fd;
    int err = errno;
    if (err == EINPROGRESS) {
        struct pollfd wait = {.fd = fd, .events = POLLOUT};
        socklen_t length = sizeof err;
        int ready = poll(&wait, 1, request->timeout_ms);
        if (ready == 0)
            err = ETIMEDOUT;
        else if (ready < 0 || getsockopt(fd, SOL_SOCKET, SO_ERROR, &err, &length) < 0)
            err = errno;
    }
    if (err)
        fail(err, "cannot connect to port %u: %s", request->ports[0], strerror(err));
    return fd;
}

/* A copy of a socket that waits for Node would keep its port in use. */
static void close_others(int keep)
{
    if (syscall(SYS_close_range, 3, keep - 1, 0) == 0 && syscall(SYS_close_range, keep + 1, ~0u, 0) == 0)
        return;
    /* Linux before 5.9. The gate's own descriptors are few. */
    for (int fd = 3; fd < 8 * REQUESTS_MAX; fd++)
        if (fd != keep)
            close(fd);
}

void serve(const struct request *request, int to)
{
    int sockets[PORTS_MAX];
    results = to;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    close_others(to);
    enter(request);
    for (size_t i = 0; i < request->port_count; i++) {
        if (request->kind == KIND_LISTEN)
            sockets[i] = listener(request->ports[i]);
        else if (request->kind == KIND_DNS)
            sockets[i] = datagram(request->address, request->ports[i]);
        else
            sockets[i] = connection(request);
    }
    /* All or none. */
    for (size_t i = 0; i < request->port_count; i++) {
        struct result result = {.port = request->ports[i]};
        if (send_with(to, &result, sizeof result, sockets[i], 0) < 0)
            _exit(1);
    }
    _exit(0);
}
