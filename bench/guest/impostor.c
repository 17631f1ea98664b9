/*
 * A guest that lies to its host. Takes the agent's port out of PID 1, stops PID 1 and speaks the agent
 * protocol (docs/spec/agent-protocol.md) itself: correctly, except for the requests that the host orders it
 * to attack with the command `attack WAY TARGET...`.
 *
 * Prints "impostor: ready" to the console when it has the port. A branch taken then makes children that are
 * impostors from their first frame on.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "impostor.h"

#ifndef SYS_pidfd_open
#define SYS_pidfd_open 434
#endif
#ifndef SYS_pidfd_getfd
#define SYS_pidfd_getfd 438
#endif

static const char *const way_names[WAYS] = {"honest", "oversized", "deep",  "endless",
                                            "silent", "slow",      "lying", "order"};
static const char *const target_names[TARGETS] = {
    "exec", "read", "write", "dir", "stat", "mkdir", "move", "remove", "chmod", "connect",
    "hello", "ping", "list", "attach", "after_fork", "sync", "clock",
};
enum way ways[TARGETS];
int port;

static int index_of(const char *const names[], int count, const char *name, size_t length)
{
    for (int i = 0; i < count; i++)
        if (strlen(names[i]) == length && memcmp(names[i], name, length) == 0)
            return i;
    return -1;
}

static void on_start(uint32_t id, const uint8_t *payload, uint32_t length)
{
    int kind = EXEC, arguments = 0, way = -1;
    uint32_t credit = 0;
    bool is_order = false;
    for (uint32_t at = 0; at + 5 <= length;) {
        const uint8_t *value = payload + at + 5;
        uint32_t bytes = get32(payload + at + 1);
        if (bytes > length - at - 5)
            return;
        if (payload[at] == 1)
            kind = value[0];
        if (payload[at] == 9)
            credit = get32(value);
        if (payload[at] == 2) {
            arguments++;
            if (arguments == 1)
                is_order = bytes == 6 && memcmp(value, "attack", 6) == 0;
            else if (is_order && arguments == 2)
                way = index_of(way_names, WAYS, (const char *)value, bytes);
            else if (is_order && way >= 0) {
                int target = index_of(target_names, TARGETS, (const char *)value, bytes);
                if (target >= 0)
                    ways[target] = (enum way)way;
            }
        }
        at += 5 + bytes;
    }
    if (is_order)
        honest(id, MKDIR, false);
    else
        start(id, kind, credit);
}

static void on_hello(uint32_t id, const uint8_t *payload, uint32_t length)
{
    uint8_t answer[128];
    uint64_t uptime = 1000;
    if (length < 21)
        return;
    memset(streams, 0, sizeof streams);
    uint32_t at = field(answer, 1, payload + 5, 16);
    at += field(answer + at, 2, "impostor", 8);
    at += field(answer + at, 3, &uptime, 8);
    at += field32(answer + at, 4, 0);
    reply(T_HELLO, HELLO_OK, id, answer, at);
}

static void on_clock(uint32_t id)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    uint64_t ns = (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
    uint8_t answer[16];
    reply(T_CLOCK, CLOCK_OK, id, answer, field(answer, 1, &ns, 8));
}

static void on_after_fork(uint32_t id)
{
    uint8_t answer[16];
    uint32_t at = field32(answer, 1, 0);
    reply(T_AFTER_FORK, FORKED, id, answer, at + field(answer + at, 2, "\0", 1));
}

static void on_frame(uint8_t type, uint32_t id, const uint8_t *payload, uint32_t length)
{
    struct stream *s = stream_of(id);
    switch (type) {
    case HELLO:
        return on_hello(id, payload, length);
    case PING:
        return reply(T_PING, OK, id, NULL, 0);
    case START:
        return on_start(id, payload, length);
    case CREDIT:
        if (s && length == 5 && payload[0] < 4)
            s->credit[payload[0]] += get32(payload + 1);
        return;
    case ATTACH:
        return reply(T_ATTACH, OK, id, NULL, 0);
    case LIST:
        return reply_list(id);
    case AFTER_FORK:
        return on_after_fork(id);
    case SYNC:
        return reply(T_SYNC, OK, id, NULL, 0);
    case CLOCK:
        return on_clock(id);
    default:
        return;
    }
}

static void serve(void)
{
    static uint8_t bytes[1 << 20];
    size_t fill = 0;
    for (;;) {
        bool sent = false;
        for (int i = 0; i < MAX_STREAMS; i++)
            sent |= streams[i].used && pump(&streams[i]);
        struct pollfd p = {.fd = port, .events = POLLIN};
        poll(&p, 1, sent ? 0 : 50);
        ssize_t n = read(port, bytes + fill, sizeof bytes - fill);
        if (n > 0)
            fill += (size_t)n;
        else if (p.revents & POLLHUP)
            pause_ms(20);
        size_t at = 0;
        while (fill - at >= HEADER) {
            const uint8_t *head = bytes + at;
            uint32_t length = get32(head + 8);
            uint32_t check = get32(head) ^ get32(head + 4) ^ length ^ CHECK;
            if (head[0] != 0xf0 || head[1] != 0x4b || get32(head + 12) != check) {
                at++;
                continue;
            }
            if (fill - at < HEADER + length)
                break;
            on_frame(head[3], get32(head + 4), head + HEADER, length);
            at += HEADER + length;
        }
        memmove(bytes, bytes + at, fill - at);
        fill -= at;
    }
}

/* PID 1 sleeps: it is not in the middle of a frame. */
static bool agent_rests(void)
{
    char text[256] = "";
    int fd = open("/proc/1/stat", O_RDONLY);
    ssize_t n = read(fd, text, sizeof text - 1);
    close(fd);
    char *state = n > 0 ? strrchr(text, ')') : NULL;
    return state && state[2] == 'S';
}

/* Every thread of PID 1. They continue if this program ends. */
static void stop_agent(void)
{
    DIR *d = opendir("/proc/1/task");
    struct dirent *e;
    while (d && (e = readdir(d))) {
        int thread = atoi(e->d_name);
        if (thread <= 0)
            continue;
        if (ptrace(PTRACE_SEIZE, thread, 0, 0) != 0 || ptrace(PTRACE_INTERRUPT, thread, 0, 0) != 0 ||
            waitpid(thread, NULL, __WALL) != thread)
            exit(2);
    }
    if (d)
        closedir(d);
}

static void take_port(void)
{
    for (int rests = 0; rests < 20; pause_ms(20))
        rests = agent_rests() ? rests + 1 : 0;
    stop_agent();
    int pid = (int)syscall(SYS_pidfd_open, 1, 0);
    DIR *d = opendir("/proc/1/fd");
    struct dirent *e;
    port = -1;
    while (d && port < 0 && (e = readdir(d))) {
        char path[300], to[300];
        snprintf(path, sizeof path, "/proc/1/fd/%s", e->d_name);
        ssize_t n = readlink(path, to, sizeof to - 1);
        if (n > 0 && strncmp(to, "/dev/vport", 10) == 0)
            port = (int)syscall(SYS_pidfd_getfd, pid, atoi(e->d_name), 0);
    }
    if (port < 0)
        exit(3);
}

int main(void)
{
    memset(big, 'x', sizeof big);
    /* The command that started it ends at once, so that nothing of it is on the port later. */
    if (fork() != 0)
        return 0;
    setsid();
    for (int number = 1; number < 32; number++)
        signal(number, SIG_IGN);
    signal(SIGCHLD, SIG_DFL);
    int score = open("/proc/self/oom_score_adj", O_WRONLY);
    if (score < 0 || write(score, "-1000", 5) != 5)
        exit(5);
    close(score);
    for (int fd = 0; fd < 3; fd++)
        close(fd);
    take_port();
    int console = open("/dev/console", O_WRONLY);
    const char text[] = "impostor: ready\n";
    if (write(console, text, sizeof text - 1) < 0)
        exit(4);
    serve();
}
