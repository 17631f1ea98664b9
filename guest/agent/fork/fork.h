/* A machine after a fork or a resume: identity, entropy, clock, and a fast first reply. */
#ifndef FORKD_FORK_H
#define FORKD_FORK_H

#include <stdint.h>

#include "wire/frames.h"

/* afterfork.c */
void after_fork_prepare(void);
void after_fork(struct frame *f);

/* clock.c: CLOCK, and the clock of AFTER_FORK. */
int clock_set(uint64_t ns);
void clock_adjust(struct frame *f);

/*
 * boost.c: frames are served with real-time priority. boost_keep: the agent has read input of the host.
 * boost_end: it has no work left; drops the priority when that was several times not because of the host.
 */
void boost_start(int port);
void boost_keep(void);
void boost_end(void);

/* pages.c: takes the page faults that a fork(2) has left, once the forked process has ended. */
void pages_own(void);

/* tsc.c */
int tsc_print(void);

#endif
