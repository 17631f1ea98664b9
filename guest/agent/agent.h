/*
 * What the parts of the agent share: mode, limits and small entry points that do not deserve a header each.
 */
#ifndef FORKD_AGENT_H
#define FORKD_AGENT_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/resource.h>
#include <sys/types.h>

#include "wire/frames.h"

#define AGENT_VERSION "1.0.0"

/* Tells a language kernel to re-seed at once, also in the middle of an eval (docs/spec/kernel-protocol.md). */
#define RESEED_SIGNAL 41

struct agent {
    bool machine;             /* PID 1 of a guest; false in --serve mode, where the host must stay untouched */
    struct rlimit child_files; /* RLIMIT_NOFILE of commands; the agent itself has a higher one */
};

extern struct agent agent;

/* init.c: boot duties; returns only when the root is in place. boot_failed prints and resets the machine. */
void init_boot(void);
_Noreturn void boot_failed(const char *step, int err);

/* port.c: finds and opens the virtio port. */
int port_open(void);

/* first.c: frames of the host are served ahead of whatever runs; first_done when there is nothing more to do. */
void first_start(int port);
void first_done(void);

/* modules.c: loads what /modules/load names, with parameters from the kernel command line. */
void modules_load(const char *cmdline);

/* Value of `key=` on the kernel command line in dst, or false. A bare key gives the empty string. */
bool cmdline_get(const char *cmdline, const char *key, char *dst, size_t size);

/* identity.c: files of /run/forkd that are bound over /etc. */
void identity_prepare(void);
int identity_hostname(const char *name, size_t len);
int identity_hosts(const char *name, size_t len);
int identity_machine_id(const uint8_t *id, size_t len);
int identity_boot_id(const uint8_t *id, size_t len);

/* afterfork.c */
void after_fork_prepare(void);
void after_fork(struct frame *f);

/* clock.c: CLOCK, and the clock of AFTER_FORK. */
int clock_set(uint64_t ns);
void clock_adjust(struct frame *f);

/* power.c */
void power_sync(uint32_t id);
void power_hello(void);
bool power_reaped(pid_t pid);
_Noreturn void power_off(void);
_Noreturn void machine_reset(void);

/* tsc.c */
int tsc_print(void);

/* Small file helpers (util.c). */
ssize_t read_whole(const char *path, char *buf, size_t size); /* NUL-terminated; -1 with errno */
int write_all(int fd, const void *data, size_t n);
int make_parents(const char *path, mode_t mode);
size_t text_copy(char *dst, size_t size, const char *src);

#endif
