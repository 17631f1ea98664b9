/*
 * The event loop: one epoll set, one thread (the second thread, in boost.c, only sets priorities). A watched
 * descriptor belongs to an object that contains a struct watch. Objects are freed with loop_free_later,
 * because events of the same batch may still refer to them.
 */
#ifndef FORKD_LOOP_H
#define FORKD_LOOP_H

#include <stdbool.h>
#include <stdint.h>

struct watch {
    void (*fn)(struct watch *w, uint32_t events);
};

void loop_init(void);
int loop_add(int fd, uint32_t events, struct watch *w);
int loop_mod(int fd, uint32_t events, struct watch *w);
void loop_del(int fd);

/* Frees memory after the current batch of events. */
void loop_free_later(void *p);

_Noreturn void loop_run(void);

/* Monotonic time in ms. */
uint64_t now_ms(void);

#endif
