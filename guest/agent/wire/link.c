/*
 * Link to the host. See link.h.
 *
 * The port is watched edge-triggered: while no host is connected, a read returns 0 and a poll always returns
 * EPOLLIN | EPOLLHUP, so a level-triggered watch would spin. EPOLLOUT is enabled only while a write is
 * blocked, because virtio_console wakes the port for every buffer that the host has consumed.
 */
#include "wire/link.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "util.h"
#include "fork/fork.h"
#include "process/proc.h"
#include "wire/loop.h"

#define QUEUE_FIRST (256u * 1024)
#define QUEUE_OUTPUT (128u * 1024) /* at this size, no more output of processes is added */
#define QUEUE_INPUT (256u * 1024)  /* at this size, no more frames are read from the host */

static struct watch port_watch;
static int port_fd = -1;
static bool port_end_exits;
static atomic_bool port_blocked; /* a write would block; EPOLLOUT is enabled */
static bool port_readable;
static bool input_stalled; /* frames wait because the queue is full; the port sends no new event for them */

static uint8_t parser_buf[PARSER_BUFFER];
static struct parser parser = {.buf = parser_buf};

static uint8_t *q;
static uint32_t q_cap, q_head, q_tail;

static void unblock(void)
{
    if (!port_blocked)
        return;
    port_blocked = false;
    loop_mod(port_fd, EPOLLIN | EPOLLET, &port_watch);
}

static void on_port(struct watch *w, uint32_t events)
{
    (void)w;
    if (events & EPOLLOUT)
        unblock();
    if (events & (EPOLLIN | EPOLLHUP | EPOLLERR | EPOLLRDHUP))
        port_readable = true;
    link_pump();
}

void link_open(int fd, bool end_exits)
{
    port_fd = fd;
    port_end_exits = end_exits;
    port_watch.fn = on_port;
    q = malloc(QUEUE_FIRST);
    q_cap = q ? QUEUE_FIRST : 0;
    loop_add(fd, EPOLLIN | EPOLLET, &port_watch);
}

uint8_t *link_begin(uint32_t max)
{
    uint32_t need = FRAME_HEADER + max;
    if (q_head == q_tail)
        q_head = q_tail = 0;
    if (q_cap - q_tail < need && q_head > 0) {
        memmove(q, q + q_head, q_tail - q_head);
        q_tail -= q_head;
        q_head = 0;
    }
    while (q_cap - q_tail < need) {
        uint8_t *bigger = realloc(q, q_cap + QUEUE_FIRST);
        if (!bigger)
            abort(); /* without a few hundred KiB of memory the machine cannot work */
        q = bigger;
        q_cap += QUEUE_FIRST;
    }
    return q + q_tail + FRAME_HEADER;
}

void link_end(uint8_t type, uint32_t id, uint32_t len)
{
    frame_header(q + q_tail, type, id, len);
    q_tail += FRAME_HEADER + len;
}

void link_ok(uint32_t id)
{
    link_begin(0);
    link_end(FT_OK, id, 0);
}

void link_error(uint32_t id, int err, const char *step, const char *subject)
{
    char text[512];
    size_t n = text_copy(text, sizeof text, step);
    if (subject && *subject) {
        n += text_copy(text + n, sizeof text - n, " '");
        n += text_copy(text + n, sizeof text - n > 128 ? sizeof text - n - 128 : 1, subject);
        n += text_copy(text + n, sizeof text - n, "'");
    }
    n += text_copy(text + n, sizeof text - n, ": ");
    n += text_copy(text + n, sizeof text - n, strerror(err));
    uint8_t *start = link_begin(10 + 5 + sizeof text), *p = start;
    p = field_put_u32(p, 1, (uint32_t)err);
    p = field_put(p, 2, text, (uint32_t)n);
    link_end(FT_ERROR, id, (uint32_t)(p - start));
}

bool link_room(void) { return q_tail - q_head < QUEUE_OUTPUT; }

void link_reset(void) { q_head = q_tail = 0; }

static _Noreturn void peer_gone(void)
{
    procs_kill_all();
    _exit(0);
}

static void write_queue(void)
{
    while (q_head < q_tail && !port_blocked) {
        ssize_t n = write(port_fd, q + q_head, q_tail - q_head);
        if (n > 0) {
            q_head += (uint32_t)n;
        } else if (n < 0 && errno == EINTR) {
            continue;
        } else if (port_end_exits && n < 0 && errno != EAGAIN) {
            peer_gone();
        } else {
            port_blocked = true;
            loop_mod(port_fd, EPOLLIN | EPOLLOUT | EPOLLET, &port_watch);
        }
    }
}

void link_flush(void)
{
    write_queue();
    while (input_stalled && q_tail - q_head < QUEUE_INPUT) {
        link_pump();
        write_queue();
    }
}

void link_pump(void)
{
    struct frame f;
    for (;;) {
        while (q_tail - q_head < QUEUE_INPUT && parser_next(&parser, &f))
            dispatch(&f);
        input_stalled = q_tail - q_head >= QUEUE_INPUT;
        if (!port_readable || input_stalled)
            return;
        uint32_t room;
        uint8_t *space = parser_space(&parser, &room);
        ssize_t n = read(port_fd, space, room);
        if (n > 0) {
            parser_fed(&parser, (uint32_t)n);
            boost_keep();
        } else if (n < 0 && errno == EINTR) {
            continue;
        } else {
            port_readable = false;
            if (port_end_exits && (n == 0 || errno != EAGAIN))
                peer_gone();
        }
    }
}

void link_retry(void)
{
    unblock();
    port_readable = true;
    link_pump();
}

bool link_is_blocked(void) { return port_blocked; }
