/*
 * A decoded START request, and the two ways to start a child from it.
 */
#ifndef FORKD_START_H
#define FORKD_START_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "wire/frames.h"
#include "process/users.h"

enum start_flag {
    START_STDIN = 1,
    START_PTY = 2,
    START_CONTROL = 4,
    START_RECURSIVE = 8,
    START_APPEND = 16,
    START_DETACHED = 32,
    START_FOLLOW = 64,
    START_EXCLUSIVE = 128,
    START_ENTRIES = 256,
    START_IN_PLACE = 512,
};

enum kind {
    KIND_COMMAND = 0,
    KIND_READ,
    KIND_WRITE,
    KIND_LIST,
    KIND_STAT,
    KIND_MKDIR,
    KIND_MOVE,
    KIND_REMOVE,
    KIND_CHMOD,
    KIND_CONNECT,
    KIND_WATCH,
    KIND_COUNT,
};

/* Strings point into one static buffer that the next START overwrites. */
struct start {
    uint8_t kind;
    uint32_t flags, timeout, credit, keep, mode, depth;
    uint16_t rows, cols, port;
    uint64_t offset, limit;
    char **argv, **env; /* NULL-terminated; env becomes the whole environment in start_environment */
    uint32_t argc, envc;
    const char *cwd, *user, *path, *path2, *label;
    struct user who;
};

/* Decodes a payload: 0, or an errno with the wrong field in *step. */
int start_parse(const struct frame *f, struct start *s, const char **step);

/* Makes cwd and paths absolute: `~` and relative ones are below the user's home. 0 or ENAMETOOLONG. */
int start_resolve_home(struct start *s);

/* A language kernel: a command with a control stream whose label begins with `kernel:`. */
bool start_is_kernel(const struct start *s);

/* Adds the user's defaults to env. */
void start_environment(struct start *s);

/* The child's descriptors; -1 = /dev/null (0, 1, 2) or closed (3). */
struct stdio {
    int fd[4];
    bool pty;
};

/* Starts the child: its pid, or -1 with errno and the failed step. A command has called exec on return. */
pid_t spawn_command(struct start *s, const struct stdio *io, const char **step, const char **subject);
pid_t spawn_builtin(struct start *s, const struct stdio *io, const char **step);

/* Runs an operation of the kinds 1-10 in the child; returns the exit code (0 or an errno). */
int builtin_run(const struct start *s);

#endif
