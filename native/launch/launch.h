/* Builds the jail of a VMM and its network namespace, then executes the VMM in it, with the same pid. */
#ifndef LAUNCH_H
#define LAUNCH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* The port that all TCP connections in the namespace are redirected to. */
#define PROXY_PORT 61000

/* fail.c */

/* Prints `forkd-launch: STEP: strerror(errno)` and exits with 125. */
_Noreturn void fail(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* Prints `forkd-launch: TEXT` and exits with 125. */
_Noreturn void refuse(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* options.c */

enum variant { VARIANT_ROOT, VARIANT_USER, VARIANT_NONE };
enum net { NET_OFF, NET_TAP, NET_SLIRP };
enum access { ACCESS_READ, ACCESS_WRITE, ACCESS_DEVICE };

struct listener {
    int fd;
    const char *path;
};

struct place {
    const char *path;
    enum access access;
};

#define UNLIMITED UINT64_MAX

struct options {
    enum variant variant;
    uint32_t uid_first, uid_count; /* count 0: not given */
    gid_t *groups;
    size_t group_count;
    const char **own;
    size_t own_count;
    struct listener *listeners;
    size_t listener_count;
    struct place *places; /* in the order of the command line */
    size_t place_count;
    enum net net;
    int tap; /* descriptor number for the program */
    int track; /* the same; 0: not given, or there is no device */
    char **env; /* ends with NULL */
    size_t env_count;
    uint64_t file_bytes, files, threads; /* UNLIMITED: not given */
    int *keep;
    size_t keep_count;
    bool filter;
    char **program; /* ends with NULL */
};

void options_read(struct options *options, int argc, char **argv);
bool variant_read(const char *text, enum variant *variant);

/* descriptors.c */

/* Occupies the numbers that the program expects, so that no other descriptor gets one of them. */
void descriptors_reserve(const struct options *options);
/* Moves fd to its reserved number, without close-on-exec. */
void descriptors_place(int fd, int number);
/* Closes everything but 0-2, the kept and the made descriptors. */
void descriptors_close(const struct options *options);
void listeners_make(const struct options *options);

/* track.c */

void track_open(struct options *options);

/* namespaces.c */

void namespaces_enter(enum variant variant);

/* netlink.c: builds messages for the kernel; one write for all of them */

struct netlink {
    int fd, err;
    size_t used;
    uint32_t sequence;
    uint8_t data[2048];
};

void netlink_open(struct netlink *netlink, int protocol);
/* Starts a message; returns the place of its header, of `bytes` zeroed bytes. */
void *netlink_message(struct netlink *netlink, uint16_t type, uint16_t flags, size_t bytes);
void netlink_attribute(struct netlink *netlink, uint16_t type, const void *value, size_t bytes);
/* Starts an attribute that contains others; returns its place for netlink_leave. */
size_t netlink_enter(struct netlink *netlink, uint16_t type);
void netlink_leave(struct netlink *netlink, size_t at);
/* Sends all messages and closes the socket: 0, or the first error of the kernel. */
int netlink_send(struct netlink *netlink);

/* network.c, tproxy.c */

void network_settings(void);
/* Makes tap0 in the namespace and returns its descriptor. */
int tap_make(void);
/* Loopback, the route that makes every address local and, with a tap, its address. */
void network_up(bool tap);
/* Redirects all TCP connections to PROXY_PORT: 0, or an error number. */
int tproxy_add(void);

/* mounts.c */

/* Replaces the root with an empty one that contains only the places. */
void mounts_build(const struct place *places, size_t count);

/* privileges.c */

/* Gives the files of the machine to its user. */
void files_own(const struct options *options, uid_t uid);
void oom_score_raise(void);

/* A VMM touches a few KiB of some areas that QEMU asks huge pages for: a child is 3 MiB smaller without. */
void huge_pages_refuse(void);
void limits_set(const struct options *options);
void privileges_drop(const struct options *options, uid_t uid);

/* landlock.c */

/* Allows only the places; false if the kernel has no Landlock. Needs no_new_privs. */
bool landlock_restrict(const struct options *options);

/* filter.c */

/* Allows AF_INET only if `inet`; VMMs with a tap need no sockets of that family. */
void filter_install(bool inet);

/* probe.c */

int probe_command(enum variant variant);

#endif
