/*
 * The host comes first: however busy the guest is, the agent serves a frame at once, because AFTER_FORK must
 * run in the first moments of a child. A real-time thread watches the port and makes the agent real-time.
 *
 * The agent is not always real-time: it would then preempt a process at each write and send each write in a
 * separate frame, which makes a program that prints lines eight times slower. It drops the priority when
 * processes have woken it several times in a row. Not earlier: calls that are answered at once would change it
 * twice each, and so would a child before its first answer, where all this code is slow. An agent that sleeps
 * when a snapshot is made has just served the host, so that in the children it is real-time already.
 *
 * A poll of the port has a side effect: virtio_console takes the next buffer out of the virtqueue, and the
 * interrupt for that buffer then wakes no thread. If this thread polls just before the interrupt arrives, the
 * agent, which watches the port edge-triggered, would never learn of the buffer. So after each poll that found
 * input the thread also wakes the agent through an eventfd, which makes it read the port. In the same way a poll
 * reclaims buffers that the host has consumed, so a poll that found space wakes an agent whose write is blocked.
 *
 * Only on a machine with one CPU. With several, another CPU can run the agent.
 *
 * Neither thread spins: the port is watched edge-triggered, and the agent sleeps when it has nothing to do.
 * Children start with normal priority. If the kernel refuses real-time priority, the agent works without it.
 */
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "fork/fork.h"
#include "wire/link.h"
#include "wire/loop.h"

#define STACK 65536
#define WAKES 4 /* without input of the host, before the priority is dropped */

static atomic_bool raised;
static atomic_uint inputs; /* counts input of the host */
static unsigned wakes;     /* since the last input that the agent has read */
static int port_ep = -1;
static int wake_fd = -1;
static struct watch wake_watch;

static int set_policy(pid_t who, int policy)
{
    struct sched_param p = {.sched_priority = policy == SCHED_RR};
    return sched_setscheduler(who, policy | SCHED_RESET_ON_FORK, &p);
}

static void *boost_on_input(void *unused)
{
    struct epoll_event ev;
    (void)unused;
    if (set_policy(0, SCHED_RR) < 0)
        return NULL;
    for (;;) {
        if (epoll_wait(port_ep, &ev, 1, -1) <= 0)
            continue;
        bool has_input = ev.events & ~(uint32_t)EPOLLOUT;
        if (has_input) {
            atomic_fetch_add(&inputs, 1);
            if (!atomic_load(&raised) && set_policy(getpid(), SCHED_RR) == 0)
                atomic_store(&raised, true);
        }
        if (has_input || link_is_blocked())
            eventfd_write(wake_fd, 1);
    }
}

/* The counter is never read: the watch is edge-triggered, so every write is one event. */
static void on_wake(struct watch *w, uint32_t events)
{
    (void)w, (void)events;
    link_retry();
}

void boost_start(int port)
{
    struct epoll_event ev = {.events = EPOLLIN | EPOLLOUT | EPOLLET};
    pthread_attr_t attr;
    pthread_t thread;
    if (sysconf(_SC_NPROCESSORS_ONLN) > 1)
        return;
    port_ep = epoll_create1(EPOLL_CLOEXEC);
    wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    wake_watch.fn = on_wake;
    if (port_ep < 0 || wake_fd < 0 || loop_add(wake_fd, EPOLLIN | EPOLLET, &wake_watch) < 0 ||
        epoll_ctl(port_ep, EPOLL_CTL_ADD, port, &ev) < 0)
        return;
    pthread_attr_init(&attr);
    pthread_attr_setstacksize(&attr, STACK);
    pthread_create(&thread, &attr, boost_on_input, NULL);
    pthread_attr_destroy(&attr);
    link_retry(); /* EPOLL_CTL_ADD polled the port, too */
}

void boost_keep(void) { wakes = 0; }

void boost_end(void)
{
    if (!atomic_load(&raised) || ++wakes <= WAKES)
        return;
    unsigned before = atomic_load(&inputs);
    set_policy(0, SCHED_OTHER);
    atomic_store(&raised, false);
    /* The thread found the agent still raised. */
    if (atomic_load(&inputs) != before && set_policy(0, SCHED_RR) == 0)
        atomic_store(&raised, true);
}
