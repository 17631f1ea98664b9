/* PID 1: boot, the agent's port, the guest's identity and power-off. */
#ifndef FORKD_BOOT_H
#define FORKD_BOOT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* init.c: init_boot returns when the root is mounted. boot_failed prints the step and resets the machine. */
void init_boot(void);
_Noreturn void boot_failed(const char *step, int err);

/* Writes a setting of the kernel. One that this kernel does not have is ignored. */
void boot_set(const char *path, const char *value);

/* modules.c: loads the modules that /modules/load names, with parameters from the kernel command line. */
void modules_load(const char *cmdline);

/* Copies the value of `key=` on the kernel command line to dst ("" for a bare key). False when absent. */
bool cmdline_get(const char *cmdline, const char *key, char *dst, size_t size);

/* port.c: finds and opens the virtio port. */
int port_open(void);

/* identity.c: files of /run/forkd that are bind-mounted over their places. */
void identity_prepare(void);
int identity_hostname(const char *name, size_t len);
int identity_hosts(const char *name, size_t len);
int identity_machine_id(const uint8_t *id, size_t len);
int identity_boot_id(const uint8_t *id, size_t len);

/*
 * publish.c: makes the text the content of `place`, by a file in /run/forkd. An image where that is not possible
 * works without it.
 */
void publish_over(const char *file, const char *place, const char *text, size_t n);

/* The certificates in the initramfs, if there are any. Open them before the root changes. */
void bundle_open(void);
void bundle_publish(void);

/* power.c */
void power_sync(uint32_t id);
void power_hello(void);
void power_reaped(pid_t pid); /* replies to SYNC when pid is its child process */
_Noreturn void power_off(void);
_Noreturn void machine_reset(void);

#endif
