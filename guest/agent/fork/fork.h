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

/* boost.c: frames are served with real-time priority; boost_end drops it when the agent has no work left. */
void boost_start(int port);
void boost_end(void);

/* tsc.c */
int tsc_print(void);

#endif
