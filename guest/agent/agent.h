/* State and constants that every part of the agent shares. */
#ifndef FORKD_AGENT_H
#define FORKD_AGENT_H

#include <stdbool.h>
#include <sys/resource.h>

#define AGENT_VERSION "1.0.0"

/* Makes a language kernel re-seed at once, also in the middle of an eval (docs/spec/kernel-protocol.md). */
#define RESEED_SIGNAL 41

struct agent {
    bool machine;              /* PID 1 of a guest; false in --serve mode, which must not change the host */
    struct rlimit child_files; /* RLIMIT_NOFILE of commands; the agent's own limit is higher */
};

extern struct agent agent;

#endif
