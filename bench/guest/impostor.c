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
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#ifndef SYS_pidfd_open
#define SYS_pidfd_open 434
#endif
#ifndef SYS_pidfd_getfd
#define SYS_pidfd_getfd 438
#endif

#define CHECK 0x464B4431u

enum { HEADER = 16, MAX_PAYLOAD = 65536, MAX_STREAMS = 64 };
/* host to guest */
enum { HELLO = 0x01, PING = 0x02, START = 0x10, CREDIT = 0x13, ATTACH = 0x16, LIST = 0x19 };
enum { AFTER_FORK = 0x20, SYNC = 0x21, CLOCK = 0x23 };
/* guest to host */
enum { HELLO_OK = 0x81, OK = 0x82, ERROR = 0x83, CLOCK_OK = 0x85, STARTED = 0x90, OUTPUT = 0x91 };
enum { OUTPUT_EOF = 0x92, INPUT_CREDIT = 0x93, EXIT = 0x94, LISTING = 0x95 };

enum way { HONEST, OVERSIZED, DEEP, ENDLESS, SILENT, SLOW, LYING, ORDER, WAYS };
static const char *const way_names[WAYS] = {"honest", "oversized", "deep",  "endless",
                                            "silent", "slow",      "lying", "order"};

/* The first ten are the kinds of START, by number. */
enum target {
    EXEC, READ, WRITE, DIR_, STAT, MKDIR, MOVE, REMOVE, CHMOD, CONNECT,
    T_HELLO, T_PING, T_LIST, T_ATTACH, T_AFTER_FORK, T_SYNC, T_CLOCK, TARGETS
};
static const char *const target_names[TARGETS] = {
    "exec", "read", "write", "dir", "stat", "mkdir", "move", "remove", "chmod", "connect",
    "hello", "ping", "list", "attach", "after_fork", "sync", "clock",
};
static enum way ways[TARGETS];

/* A process or request whose answer never ends, or ends after `left` frames. */
struct stream {
    bool used, is_requests;
    uint32_t id, credit[4];
    uint64_t offset[4];
    int kind, number;
    long left;
};
static struct stream streams[MAX_STREAMS];
static int port;
static long name_count;

static void pause_ms(long ms)
{
    struct timespec t = {.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000};
    nanosleep(&t, NULL);
}

static void send_bytes(const uint8_t *bytes, size_t length, bool slowly)
{
    for (size_t at = 0; at < length;) {
        ssize_t n = write(port, bytes + at, slowly ? 1 : length - at);
        if (n > 0)
            at += (size_t)n;
        else
            pause_ms(2);
        if (slowly)
            pause_ms(10);
    }
}

static void put32(uint8_t *to, uint32_t value)
{
    memcpy(to, &value, 4);
}

static uint32_t get32(const uint8_t *from)
{
    uint32_t value;
    memcpy(&value, from, 4);
    return value;
}

/* `claimed` is the length that the header names. */
static void frame_claiming(uint32_t claimed, uint8_t type, uint32_t id, const void *payload, uint32_t length,
                           bool slowly)
{
    static uint8_t bytes[HEADER + MAX_PAYLOAD];
    const uint8_t magic[] = {0xf0, 0x4b, 1, type};
    memcpy(bytes, magic, 4);
    put32(bytes + 4, id);
    put32(bytes + 8, claimed);
    put32(bytes + 12, get32(bytes) ^ id ^ claimed ^ CHECK);
    if (length > 0)
        memcpy(bytes + HEADER, payload, length);
    send_bytes(bytes, HEADER + length, slowly);
}

static void frame(uint8_t type, uint32_t id, const void *payload, uint32_t length, bool slowly)
{
    frame_claiming(length, type, id, payload, length, slowly);
}

static uint32_t field(uint8_t *to, uint8_t key, const void *value, uint32_t length)
{
    to[0] = key;
    put32(to + 1, length);
    if (length > 0)
        memcpy(to + 5, value, length);
    return 5 + length;
}

static uint32_t field32(uint8_t *to, uint8_t key, uint32_t value)
{
    return field(to, key, &value, 4);
}

static uint8_t big[MAX_PAYLOAD];

static uint32_t many_fields(uint8_t *to, uint32_t from)
{
    uint32_t at = from;
    while (at + 5 <= MAX_PAYLOAD)
        at += field(to + at, 200, NULL, 0);
    return at;
}

static void listing(uint32_t id, uint32_t process)
{
    static uint8_t text[30000];
    uint8_t offsets[24] = {0};
    memset(text, 'x', sizeof text);
    uint32_t at = field32(big, 1, process);
    at += field32(big + at, 2, 7);
    at += field(big + at, 3, "\1", 1);
    at += field(big + at, 4, text, sizeof text);
    at += field(big + at, 5, text, sizeof text);
    at += field(big + at, 6, "\0", 1);
    at += field(big + at, 7, offsets, sizeof offsets);
    frame(LISTING, id, big, at, false);
}

static struct stream *stream_of(uint32_t id)
{
    for (int i = 0; i < MAX_STREAMS; i++)
        if (streams[i].used && streams[i].id == id)
            return &streams[i];
    return NULL;
}

static struct stream *new_stream(uint32_t id, int kind, uint32_t credit)
{
    for (int i = 0; i < MAX_STREAMS; i++) {
        if (streams[i].used)
            continue;
        streams[i] = (struct stream){.used = true, .id = id, .kind = kind, .number = 1, .left = -1};
        for (int number = 1; number < 4; number++)
            streams[i].credit[number] = credit;
        return &streams[i];
    }
    return NULL;
}

static uint32_t record(uint8_t *to, uint32_t name_bytes, uint32_t target_bytes)
{
    memset(to, 0, 29);
    to[0] = target_bytes > 0 ? 'l' : 'f';
    uint16_t length = (uint16_t)name_bytes, target = (uint16_t)target_bytes;
    memcpy(to + 29, &length, 2);
    memset(to + 31, 'n', name_bytes);
    char number[24];
    int digits = snprintf(number, sizeof number, "%ld", name_count++);
    if ((uint32_t)digits <= name_bytes)
        memcpy(to + 31, number, (size_t)digits);
    memcpy(to + 31 + name_bytes, &target, 2);
    memset(to + 33 + name_bytes, 't', target_bytes);
    return 33 + name_bytes + target_bytes;
}

static void output(uint32_t id, int number, uint64_t offset, const void *bytes, uint32_t length)
{
    static uint8_t payload[MAX_PAYLOAD];
    payload[0] = (uint8_t)number;
    memcpy(payload + 1, &offset, 8);
    memcpy(payload + 9, bytes, length);
    frame(OUTPUT, id, payload, 9 + length, false);
}

static void started(uint32_t id, bool slowly)
{
    uint8_t payload[16];
    frame(STARTED, id, payload, field32(payload, 1, 7), slowly);
}

static void ended(uint32_t id, bool slowly)
{
    uint8_t payload[28] = {0};
    frame(EXIT, id, payload, sizeof payload, slowly);
}

/* What the stream of this kind carries; whole records for a directory. */
static uint32_t body_of(int kind, uint8_t *to, uint32_t room)
{
    if (kind != DIR_ && kind != STAT) {
        memset(to, 'x', room);
        return room;
    }
    uint32_t at = 0;
    while (at + 640 <= room)
        at += record(to + at, 605, 0);
    return at;
}

/* Sends one frame of an endless answer, as far as the host's credit goes. True if something was sent. */
static bool pump(struct stream *s)
{
    static uint8_t body[MAX_PAYLOAD];
    if (s->is_requests) {
        listing(s->id, (uint32_t)++name_count);
        return true;
    }
    uint32_t room = s->credit[s->number] < 60000 ? s->credit[s->number] : 60000;
    uint32_t length = room < 1000 ? 0 : body_of(s->kind, body, room);
    if (length == 0)
        return false;
    if (s->left == 0) {
        s->used = false;
        ended(s->id, false);
        return true;
    }
    output(s->id, s->number, s->offset[s->number], body, length);
    s->offset[s->number] += length;
    s->credit[s->number] -= length;
    if (s->left > 0)
        s->left--;
    return true;
}

/* Answers of one frame: to HELLO, PING, SYNC, CLOCK, AFTER_FORK, ATTACH. `payload` is the honest answer. */
static void reply(enum target target, uint8_t type, uint32_t id, const uint8_t *payload, uint32_t length)
{
    struct stream *s;
    switch (ways[target]) {
    case SILENT:
        return;
    case OVERSIZED:
        if (length > 0)
            memcpy(big, payload, length);
        uint32_t at = length;
        at += field(big + at, type == HELLO_OK ? 2 : 9, NULL, 0);
        put32(big + at - 4, MAX_PAYLOAD - at);
        memset(big + at, 'v', MAX_PAYLOAD - at);
        frame(type, id, big, MAX_PAYLOAD, false);
        return;
    case DEEP:
        if (type == HELLO_OK || type == CLOCK_OK) {
            memcpy(big, payload, length);
            frame(type, id, big, many_fields(big, length), false);
        } else {
            frame(ERROR, id, big, many_fields(big, field32(big, 1, 5)), false);
        }
        return;
    case ENDLESS:
        if ((s = new_stream(id, 0, 0)))
            s->is_requests = true;
        return;
    case SLOW:
        frame(type, id, payload, length, true);
        return;
    case LYING:
        field(big, 1, "errn", 4);
        put32(big + 1, 0x7fffffff);
        frame(type == HELLO_OK ? HELLO_OK : ERROR, id, big, 9, false);
        return;
    case ORDER:
        frame(STARTED, id, payload, length, false);
        frame(type, id, payload, length, false);
        frame(type, id, payload, length, false);
        return;
    default:
        frame(type, id, payload, length, false);
    }
}

static void reply_list(uint32_t id)
{
    uint8_t payload[9];
    switch (ways[T_LIST]) {
    case SILENT:
        return;
    case OVERSIZED:
        for (uint32_t n = 1; n <= 2000; n++)
            listing(id, n);
        break;
    case DEEP:
        frame(LISTING, id, big, many_fields(big, field32(big, 1, 5)), false);
        break;
    case ENDLESS: {
        struct stream *s = new_stream(id, 0, 0);
        if (s)
            s->is_requests = true;
        return;
    }
    case SLOW:
        frame(OK, id, NULL, 0, true);
        return;
    case LYING:
        /* The check is right, the length is not. */
        frame_claiming(0xfffffff0, LISTING, id, payload, field32(payload, 1, 5), false);
        return;
    case ORDER:
        frame(OK, id, NULL, 0, false);
        frame(LISTING, id, payload, field32(payload, 1, 5), false);
        return;
    default:
        break;
    }
    frame(OK, id, NULL, 0, false);
}

/* Single bytes, each in its own frame. */
static void drip(uint32_t id, int kind, uint32_t credit)
{
    static uint8_t body[70000], frames[MAX_PAYLOAD];
    uint32_t length = kind == DIR_ || kind == STAT ? record(body, 30000, 0) : 4000, fill = 0;
    for (uint64_t at = 0; at < length && at < credit; at++) {
        uint8_t *head = frames + fill;
        const uint8_t magic[] = {0xf0, 0x4b, 1, OUTPUT};
        memcpy(head, magic, 4);
        put32(head + 4, id);
        put32(head + 8, 10);
        put32(head + 12, get32(head) ^ id ^ 10 ^ CHECK);
        head[HEADER] = 1;
        memcpy(head + HEADER + 1, &at, 8);
        head[HEADER + 9] = body[at];
        fill += HEADER + 10;
        if (fill + HEADER + 10 > sizeof frames || at + 1 == length || at + 1 == credit) {
            send_bytes(frames, fill, false);
            fill = 0;
        }
    }
}

static void lie(uint32_t id, int kind)
{
    uint8_t body[64];
    switch (kind) {
    case EXEC:
        /* beyond any credit */
        started(id, false);
        for (uint64_t at = 0; at < 40; at++)
            output(id, 1, at * 60000, big, 60000);
        break;
    case READ:
        started(id, false);
        output(id, 1, 1ull << 40, "late", 4);
        break;
    case DIR_:
    case STAT:
        /* The record claims a longer name than it has. */
        started(id, false);
        memset(body, 0xff, sizeof body);
        body[0] = 'f';
        output(id, 1, 0, body, sizeof body);
        ended(id, false);
        break;
    case WRITE:
        started(id, false);
        memset(body, 0xff, 5);
        body[0] = 0;
        frame(INPUT_CREDIT, id, body, 5, false);
        break;
    default:
        started(id, false);
        frame(EXIT, id, body, 3, false);
    }
}

static void disorder(uint32_t id, int kind)
{
    uint8_t eof[9] = {1};
    switch (kind) {
    case READ:
        started(id, false);
        frame(OUTPUT_EOF, id, eof, sizeof eof, false);
        output(id, 1, 0, "after", 5);
        break;
    case DIR_:
        started(id, false);
        started(id, false);
        break;
    case STAT:
        started(id, false);
        ended(id, false);
        output(id, 1, 0, "after", 5);
        break;
    case WRITE:
        output(id, 1, 0, "before", 6);
        started(id, false);
        break;
    default:
        ended(id, false);
        started(id, false);
    }
}

static void honest(uint32_t id, int kind, bool slowly)
{
    uint8_t body[128];
    started(id, slowly);
    if (kind == EXEC || kind == READ)
        output(id, 1, 0, "fine\n", 5);
    else if (kind == STAT || kind == DIR_)
        output(id, 1, 0, body, record(body, 5, 0));
    ended(id, slowly);
}

static void start(uint32_t id, int kind, uint32_t credit)
{
    struct stream *s;
    if (kind < EXEC || kind > CONNECT)
        kind = EXEC;
    switch (ways[kind]) {
    case SILENT:
        return;
    case OVERSIZED:
        if (kind == STAT) {
            static uint8_t body[140000];
            uint32_t length = record(body, 65535, 65535);
            started(id, false);
            for (uint32_t at = 0; at < length; at += 60000)
                output(id, 1, at, body + at, length - at < 60000 ? length - at : 60000);
            ended(id, false);
            return;
        }
        started(id, false);
        if ((s = new_stream(id, kind, credit)))
            s->left = kind == DIR_ ? 1054 : 200; /* 98,000 names, or 12 MB */
        return;
    case DEEP:
        frame(STARTED, id, big, many_fields(big, field32(big, 1, 7)), false);
        drip(id, kind, credit);
        ended(id, false);
        return;
    case ENDLESS:
        started(id, false);
        s = new_stream(id, kind, credit);
        if (s && kind > STAT)
            s->number = 2;
        return;
    case LYING:
        lie(id, kind);
        return;
    case ORDER:
        disorder(id, kind);
        return;
    default:
        honest(id, kind, ways[kind] == SLOW);
    }
}

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
        return reply(T_AFTER_FORK, OK, id, NULL, 0);
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
