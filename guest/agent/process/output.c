/*
 * Streams from a process to the host: 1, 2 and 3.
 *
 * Two numbers describe a stream: `total` bytes were read from the process, `sent` of them were queued on the
 * link. While attached, reading stops when the ring holds only unsent bytes; while detached, the oldest are
 * dropped.
 *
 * Order: when bytes of stream 3 are read, everything that the process wrote to 1 and 2 before is already in
 * the pipes. The barrier is that position. Stream 3 is neither sent nor read again before both streams have
 * passed it.
 */
#include <errno.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "process/proc.h"
#include "wire/link.h"

#define READ_MAX 65536u
#define OUTPUT_HEAD 9u
#define PTY_LEFT (128 * 1024) /* upper bound of what a terminal buffers; it does not report the amount */

static uint8_t scratch[READ_MAX];

static void set_drained(struct outs *o)
{
    o->drained = true;
    o->mark = o->total;
}

static int64_t pending(const struct proc *p, unsigned i)
{
    int n = 0;
    if (p->chan[i].fd < 0 || ioctl(p->chan[i].fd, FIONREAD, &n) < 0)
        return 0;
    return n;
}

/* How many bytes may be read from stream i now. */
static uint32_t room(struct proc *p, unsigned i)
{
    struct outs *o = &p->out[i];
    if (!p->attached)
        return READ_MAX;
    uint64_t unsent = o->total - o->sent;
    if (unsent >= p->keep || (i == 3 && unsent > 0))
        return 0;
    uint32_t n = p->keep - (uint32_t)unsent;
    return n < READ_MAX ? n : READ_MAX;
}

static bool can_read(struct proc *p, unsigned i)
{
    return p->chan[i].readable && p->chan[i].fd >= 0 && room(p, i) > 0;
}

static void end_of_stream(struct proc *p, unsigned i)
{
    struct outs *o = &p->out[i];
    if (p->pty && i == 1 && p->state == RUNNING) {
        /*
         * No process has the terminal open now, but one may open it again. If the leader is just exiting,
         * closing the master would send it SIGHUP. So the stream ends only after the leader has been reaped.
         */
        p->chan[i].readable = false;
        return;
    }
    o->eof = true;
    set_drained(o);
    if (i == 3)
        p->in3.open = false;
    if (i == 1 && p->pty)
        p->in0.open = false;
    chan_close(&p->chan[i]);
}

/* Reads once. The ring grows when a read fills it: quiet streams stay small, busy ones get long reads. */
static void read_some(struct proc *p, unsigned i)
{
    struct outs *o = &p->out[i];
    struct chan *c = &p->chan[i];
    uint32_t n = room(p, i), unsent = p->attached ? (uint32_t)(o->total - o->sent) : 0;
    if (o->ring.cap == unsent)
        ring_grow(&o->ring, unsent ? 2 * unsent : 1);
    /* Unsent bytes must not be dropped. */
    if (n > o->ring.cap - unsent)
        n = o->ring.cap - unsent;
    if (n == 0) {
        c->readable = false; /* no memory; the next event tries again */
        return;
    }
    ssize_t r = read(c->fd, scratch, n);
    if (r > 0) {
        ring_grow(&o->ring, (uint32_t)r == n ? 2 * o->ring.cap : o->ring.len + (uint32_t)r);
        ring_put(&o->ring, scratch, (uint32_t)r);
        o->total += (uint64_t)r;
        bool draining = p->state != RUNNING && !o->drained;
        /* A short read means an empty pipe, but not for a terminal. After HUP the end must be read. */
        if ((uint32_t)r < n && !c->hup && !p->pty && !draining)
            c->readable = false;
        if (draining && (o->drain_left -= r) <= 0)
            set_drained(o);
        if (!p->attached)
            o->sent = o->total;
    } else if (r == 0 || (errno != EAGAIN && errno != EINTR)) {
        end_of_stream(p, i);
    } else if (errno == EAGAIN) {
        c->readable = false;
        if (p->state != RUNNING && !o->drained)
            set_drained(o);
    }
}

static void set_barrier(struct proc *p)
{
    if (p->pty) /* FIONREAD does not count bytes that the terminal still processes */
        while (can_read(p, 1))
            read_some(p, 1);
    for (unsigned i = 1; i <= 2; i++) {
        int64_t n = pending(p, i);
        p->out[i].barrier = p->out[i].total + (uint64_t)n;
        if (n > 0)
            p->chan[i].readable = true;
    }
}

static bool barrier_passed(const struct proc *p)
{
    for (unsigned i = 1; i <= 2; i++) {
        const struct outs *o = &p->out[i];
        /* After the end of a stream no more bytes arrive, even if FIONREAD had counted them. */
        if (o->used && o->sent < o->barrier && !(o->eof && o->sent == o->total))
            return false;
    }
    return true;
}

/* Sends what credit allows. False when the link has no room. */
static bool send_some(struct proc *p, unsigned i)
{
    struct outs *o = &p->out[i];
    while (o->sent < o->total && o->credit > 0) {
        if (i == 3 && !barrier_passed(p))
            return true;
        if (!link_room())
            return false;
        uint64_t n = o->total - o->sent;
        if (n > o->credit)
            n = o->credit;
        if (n > FRAME_PAYLOAD_MAX - OUTPUT_HEAD)
            n = FRAME_PAYLOAD_MAX - OUTPUT_HEAD;
        uint8_t *b = link_begin(OUTPUT_HEAD + (uint32_t)n);
        b[0] = (uint8_t)i;
        put_u64(b + 1, o->sent);
        ring_copy(&o->ring, (uint32_t)(o->total - o->sent), b + OUTPUT_HEAD, (uint32_t)n);
        link_end(FT_OUTPUT, p->id, OUTPUT_HEAD + (uint32_t)n);
        o->sent += n;
        o->credit -= n;
    }
    if (o->eof && !o->eof_sent && o->sent == o->total) {
        if (!link_room())
            return false;
        uint8_t *b = link_begin(9);
        b[0] = (uint8_t)i;
        put_u64(b + 1, o->total);
        link_end(FT_OUTPUT_EOF, p->id, 9);
        o->eof_sent = true;
    }
    return true;
}

static bool delivered(const struct proc *p)
{
    for (unsigned i = 1; i <= 3; i++) {
        const struct outs *o = &p->out[i];
        if (o->used && (!o->drained || o->sent < o->mark || (o->eof && !o->eof_sent)))
            return false;
    }
    return true;
}

static void send_exit(struct proc *p)
{
    bool killed = (p->status & 0x7f) != 0;
    uint8_t *b = link_begin(28);
    b[0] = killed;
    b[1] = (uint8_t)(killed ? p->status & 0x7f : p->status >> 8 & 0xff);
    b[2] = p->timed_out;
    b[3] = 0;
    put_u64(b + 4, p->user_us);
    put_u64(b + 12, p->system_us);
    put_u64(b + 20, p->rss_kib);
    link_end(FT_EXIT, p->id, 28);
}

enum pump_result output_pump(struct proc *p)
{
    bool fits = true;
    if (can_read(p, 3)) {
        read_some(p, 3);
        if (p->attached && p->out[3].sent < p->out[3].total)
            set_barrier(p);
    }
    for (unsigned i = 1; i <= 2; i++) {
        if (can_read(p, i))
            read_some(p, i);
        if (p->attached)
            fits &= send_some(p, i);
    }
    if (p->attached)
        fits &= send_some(p, 3);
    input_report(p);
    if (p->attached && p->state == EXITED && delivered(p)) {
        if (!link_room())
            return PUMP_BLOCKED;
        send_exit(p);
        proc_exit_sent(p); /* may free p */
        return PUMP_IDLE;
    }
    if (!fits)
        return PUMP_BLOCKED;
    return can_read(p, 1) || can_read(p, 2) || can_read(p, 3) ? PUMP_AGAIN : PUMP_IDLE;
}

void output_exited(struct proc *p)
{
    for (unsigned i = 1; i <= 3; i++) {
        struct outs *o = &p->out[i];
        if (!o->used || o->drained)
            continue;
        p->chan[i].readable = true;
        /* One byte more than the leader can have left: it finds the end, or output of another process. */
        o->drain_left = 1 + (i == 1 && p->pty ? PTY_LEFT : pending(p, i));
    }
}

void output_attach(struct proc *p, const uint8_t *offsets)
{
    for (unsigned i = 1; i <= 3; i++) {
        struct outs *o = &p->out[i];
        uint64_t from = get_u64(offsets + (i - 1) * 12);
        uint64_t oldest = o->total - o->ring.len;
        o->sent = from < oldest ? oldest : from > o->total ? o->total : from;
        o->credit = get_u32(offsets + (i - 1) * 12 + 8);
        o->eof_sent = false;
    }
    set_barrier(p);
}
