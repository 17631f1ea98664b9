/*
 * Streams from the host to a process: 0 (pipe or terminal) and 3 (socket).
 *
 * Bytes are written at once if the process accepts them; the rest waits in a ring. Consumed bytes are
 * reported to the host in steps of CREDIT_STEP: smaller than the window, so the host never stalls, and a
 * short message costs no reply.
 */
#include <errno.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "process/proc.h"
#include "wire/link.h"

#define CREDIT_STEP (INPUT_WINDOW / 4)

static struct ins *ins_of(struct proc *p, uint8_t stream) { return stream == 3 ? &p->in3 : &p->in0; }

static struct chan *chan_of(struct proc *p, uint8_t stream)
{
    return &p->chan[stream == 3 ? 3 : p->pty ? 1 : 0];
}

static void consume(struct ins *in, uint32_t n)
{
    uint32_t old = n < in->stale ? n : in->stale;
    in->stale -= old;
    in->credit += n - old;
}

/* Bytes written, 0 when the process accepts no more now, -1 when it has closed the stream. */
static ssize_t write_stream(struct chan *c, const uint8_t *data, uint32_t n)
{
    for (;;) {
        ssize_t w = c->index == 3 ? send(c->fd, data, n, MSG_NOSIGNAL) : write(c->fd, data, n);
        if (w >= 0)
            return w;
        if (errno == EAGAIN)
            return 0;
        if (errno != EINTR)
            return -1;
    }
}

static void arm(struct chan *c, bool on)
{
    if (c->want_out == on || c->fd < 0)
        return;
    c->want_out = on;
    loop_mod(c->fd, (c->index ? EPOLLIN : 0) | (on ? EPOLLOUT : 0) | EPOLLET, &c->w);
}

static void finish(struct proc *p, uint8_t stream)
{
    struct ins *in = ins_of(p, stream);
    struct chan *c = chan_of(p, stream);
    in->open = false;
    ring_free(&in->ring);
    if (c->fd < 0)
        return;
    if (stream == 3)
        shutdown(c->fd, SHUT_WR);
    else if (p->pty)
        pty_type_eof(c->fd);
    else
        chan_close(c);
}

/* Only for commands: input for other kinds fails with their exit, and a TCP peer may still answer. */
static void report_closed(const struct proc *p)
{
    if (p->kind != KIND_COMMAND || p->state != RUNNING)
        return;
    *link_begin(1) = 0;
    link_end(FT_INPUT_CLOSED, p->id, 1);
}

void input_attach(struct proc *p)
{
    if (!p->in0.open || p->in0.eof)
        report_closed(p);
}

/* The process has closed the stream: waiting bytes count as consumed, so that the host does not hang. */
static void discard(struct proc *p, struct ins *in, struct chan *c)
{
    if (p->attached && c->index != 3)
        report_closed(p);
    consume(in, in->ring.len);
    ring_free(&in->ring);
    in->open = false;
    if (c->index == 0)
        chan_close(c);
    else
        arm(c, false);
}

void input_write(struct proc *p, uint8_t stream, const uint8_t *data, uint32_t n)
{
    struct ins *in = ins_of(p, stream);
    struct chan *c = chan_of(p, stream);
    if (!in->open || in->eof || c->fd < 0) {
        consume(in, n);
        proc_dirty(p);
        return;
    }
    if (in->ring.len == 0) {
        ssize_t w = write_stream(c, data, n);
        if (w < 0) {
            consume(in, n);
            discard(p, in, c);
            proc_dirty(p);
            return;
        }
        consume(in, (uint32_t)w);
        data += w;
        n -= (uint32_t)w;
    }
    if (n > 0) {
        if (n > in->ring.max - in->ring.len || ring_grow(&in->ring, in->ring.len + n) < 0) {
            link_error(p->id, EPROTO, "input beyond the window", NULL);
            return;
        }
        ring_put(&in->ring, data, n);
        arm(c, true);
    }
    if (in->credit >= CREDIT_STEP)
        proc_dirty(p);
}

void input_eof(struct proc *p, uint8_t stream)
{
    struct ins *in = ins_of(p, stream);
    if (!in->open)
        return;
    if (p->pty && stream == 0) {
        /* A terminal stays open after its end-of-file character. */
        if (in->ring.len == 0)
            pty_type_eof(chan_of(p, stream)->fd);
        else if (ring_grow(&in->ring, in->ring.len + 1) == 0)
            ring_put(&in->ring, (const uint8_t *)"\4", 1), in->stale++;
        return;
    }
    in->eof = true;
    if (p->attached && stream == 0)
        report_closed(p);
    if (in->ring.len == 0)
        finish(p, stream);
}

void input_ready(struct proc *p, struct chan *c)
{
    uint8_t stream = c->index == 3 ? 3 : 0;
    struct ins *in = ins_of(p, stream);
    while (in->open && in->ring.len > 0) {
        uint32_t n;
        const uint8_t *front = ring_front(&in->ring, &n);
        ssize_t w = write_stream(c, front, n);
        if (w == 0)
            return;
        if (w < 0) {
            discard(p, in, c);
            return;
        }
        ring_drop(&in->ring, (uint32_t)w);
        consume(in, (uint32_t)w);
    }
    arm(c, false);
    if (in->open && in->eof)
        finish(p, stream);
}

static void report(struct proc *p, uint8_t stream)
{
    struct ins *in = ins_of(p, stream);
    if (in->credit < CREDIT_STEP || !p->attached || p->state != RUNNING || !link_room())
        return;
    uint8_t *b = link_begin(5);
    b[0] = stream;
    put_u32(b + 1, in->credit);
    link_end(FT_INPUT_CREDIT, p->id, 5);
    in->credit = 0;
}

void input_report(struct proc *p)
{
    report(p, 0);
    report(p, 3);
}

void input_hello(struct proc *p)
{
    p->in0.stale = p->in0.ring.len;
    p->in3.stale = p->in3.ring.len;
    p->in0.credit = p->in3.credit = 0;
}
