/* What a forked or resumed machine needs: new identity and entropy, the clock, a fast first reply. */
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

/* first.c: serves frames ahead of other processes; first_done ends that when the agent has no work left. */
void first_start(int port);
void first_done(void);

/* tsc.c */
int tsc_print(void);

#endif
