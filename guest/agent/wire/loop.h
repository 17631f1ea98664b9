/*
 * The event loop: one epoll set, one thread (a second one, in first.c, only sets priorities). A watched descriptor belongs to an object that begins with (or holds)
 * a struct watch. Objects are freed with loop_free_later, because events of the same batch may still name them.
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

/* Frees memory once the current batch of events is done. */
void loop_free_later(void *p);

/* Serves for ever. */
_Noreturn void loop_run(void);

/* Monotonic time in ms; boot time for messages, never for the wall clock. */
uint64_t now_ms(void);

#endif
