/* Event loop. See loop.h. */
#include "wire/loop.h"

#include <stdlib.h>
#include <sys/epoll.h>
#include <time.h>

#include "fork/fork.h"
#include "process/proc.h"
#include "wire/link.h"

#define BATCH 64

static int epfd = -1;
static void **later;
static uint32_t later_len, later_cap;

void loop_init(void) { epfd = epoll_create1(EPOLL_CLOEXEC); }

int loop_add(int fd, uint32_t events, struct watch *w)
{
    struct epoll_event ev = {.events = events, .data.ptr = w};
    return epoll_ctl(epfd, EPOLL_CTL_ADD, fd, &ev);
}

int loop_mod(int fd, uint32_t events, struct watch *w)
{
    struct epoll_event ev = {.events = events, .data.ptr = w};
    return epoll_ctl(epfd, EPOLL_CTL_MOD, fd, &ev);
}

void loop_del(int fd) { epoll_ctl(epfd, EPOLL_CTL_DEL, fd, NULL); }

void loop_free_later(void *p)
{
    if (later_len == later_cap) {
        uint32_t cap = later_cap ? later_cap * 2 : 64;
        void **bigger = realloc(later, cap * sizeof *later);
        if (!bigger)
            return; /* leaking a small object is better than a use after free */
        later = bigger;
        later_cap = cap;
    }
    later[later_len++] = p;
}

uint64_t now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}

_Noreturn void loop_run(void)
{
    struct epoll_event ev[BATCH];
    for (;;) {
        /* Processes run before the flush, so that replies and the resulting output are sent in one write. */
        procs_run();
        link_flush();
        int timeout = procs_pending() ? 0 : procs_timeout();
        if (timeout != 0)
            boost_end();
        int n = epoll_wait(epfd, ev, BATCH, timeout);
        for (int i = 0; i < n; i++) {
            struct watch *w = ev[i].data.ptr;
            w->fn(w, ev[i].events);
        }
        procs_expire();
        while (later_len)
            free(later[--later_len]);
    }
}
