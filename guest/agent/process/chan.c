/*
 * Descriptors of processes in the event loop, and orphaned pipes.
 *
 * All are watched edge-triggered and only for input. EPOLLOUT is added only while input for the process
 * waits: a socket would otherwise wake the agent each time the process reads.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "process/proc.h"

#define ORPHANS_MAX 1024

static void on_chan(struct watch *w, uint32_t events)
{
    struct chan *c = (struct chan *)w;
    if (c->fd < 0)
        return;
    if (events & (EPOLLHUP | EPOLLERR))
        c->hup = true;
    if (events & (EPOLLIN | EPOLLHUP | EPOLLERR))
        c->readable = true;
    if (events & (EPOLLOUT | EPOLLERR))
        input_ready(c->proc, c);
    proc_dirty(c->proc);
}

int chan_open(struct proc *p, unsigned index, int fd, uint32_t events)
{
    struct chan *c = &p->chan[index];
    c->w.fn = on_chan;
    c->proc = p;
    c->index = (uint8_t)index;
    c->fd = fd;
    fcntl(fd, F_SETFL, O_NONBLOCK);
    return loop_add(fd, events | EPOLLET, &c->w);
}

void chan_close(struct chan *c)
{
    if (c->fd >= 0) {
        loop_del(c->fd); /* close alone is not enough: a child that was just forked may still hold a copy */
        close(c->fd);
    }
    c->fd = -1;
    c->readable = c->hup = false;
}

struct orphan {
    struct watch w;
    int fd;
};

static unsigned orphans;

static void on_orphan(struct watch *w, uint32_t events)
{
    static char sink[16384];
    struct orphan *o = (struct orphan *)w;
    ssize_t n = 0;
    (void)events;
    if (o->fd < 0)
        return;
    /* Level-triggered and one read per event, so an orphan with much output cannot block the agent. */
    n = read(o->fd, sink, sizeof sink);
    if (n > 0 || (n < 0 && (errno == EAGAIN || errno == EINTR)))
        return;
    loop_del(o->fd);
    close(o->fd);
    o->fd = -1;
    orphans--;
    loop_free_later(o);
}

/*
 * The process is forgotten, but a process that it started may still write to the pipe. A background server
 * must not be killed by SIGPIPE, so its output is read and discarded.
 */
void chan_orphan(struct chan *c)
{
    struct orphan *o = c->fd >= 0 && orphans < ORPHANS_MAX ? malloc(sizeof *o) : NULL;
    int fd = c->fd;
    if (o) {
        /* The pipe stays open and gets a new owner. */
        o->w.fn = on_orphan;
        o->fd = fd;
        if (loop_mod(fd, EPOLLIN, &o->w) == 0) {
            orphans++;
            c->fd = -1;
            return;
        }
        free(o);
    }
    chan_close(c);
}
