/*
 * The host comes first. However busy the guest is, a frame is served at once: AFTER_FORK belongs to the first moments of
 * a child. A real-time thread waits for the port beside the agent, and makes the agent real-time until it sleeps again.
 *
 * The agent is not real-time for good: it would take the CPU from a process at each of its writes and send each in a
 * frame of its own, which makes a program that prints lines slower by a factor of eight.
 *
 * Only on a machine with one CPU. With several, another one is there for the agent; and under emulation one in ten machines
 * with two CPUs and this thread fell asleep for good while it booted.
 *
 * Neither spins: the port is watched edge-triggered, and the agent sleeps whenever it has nothing to do. Children begin
 * as ordinary processes. Where the kernel refuses, the agent does without.
 */
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "fork/fork.h"

#define STACK 65536

static atomic_bool raised;
static int port_ep = -1;

static int set_policy(pid_t who, int policy)
{
    struct sched_param p = {.sched_priority = policy == SCHED_RR};
    return sched_setscheduler(who, policy | SCHED_RESET_ON_FORK, &p);
}

static void *attend(void *unused)
{
    struct epoll_event ev;
    (void)unused;
    if (set_policy(0, SCHED_RR) < 0)
        return NULL;
    for (;;)
        /* In this order, so that the agent never misses that it has to step back. */
        if (epoll_wait(port_ep, &ev, 1, -1) > 0 && set_policy(getpid(), SCHED_RR) == 0)
            atomic_store(&raised, true);
}

void first_start(int port)
{
    struct epoll_event ev = {.events = EPOLLIN | EPOLLET};
    pthread_attr_t attr;
    pthread_t thread;
    if (sysconf(_SC_NPROCESSORS_ONLN) > 1)
        return;
    port_ep = epoll_create1(EPOLL_CLOEXEC);
    if (port_ep < 0 || epoll_ctl(port_ep, EPOLL_CTL_ADD, port, &ev) < 0)
        return;
    pthread_attr_init(&attr);
    pthread_attr_setstacksize(&attr, STACK);
    pthread_create(&thread, &attr, attend, NULL);
    pthread_attr_destroy(&attr);
}

void first_done(void)
{
    if (atomic_load(&raised)) {
        atomic_store(&raised, false);
        set_policy(0, SCHED_OTHER);
    }
}
