/*
 * Where a machine does not have its own user, Landlock restricts what it can do as the user of the daemon. It can
 * write to its files but not add or replace any, so it cannot plant a symbolic link for the daemon to follow.
 * Without namespaces, Landlock also hides all other files. Kernels before 5.13 do not have it.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "launch.h"

/* <linux/landlock.h> of older systems lacks most of this. */
#ifndef SYS_landlock_create_ruleset
#define SYS_landlock_create_ruleset 444
#define SYS_landlock_add_rule 445
#define SYS_landlock_restrict_self 446
#endif
#define ASK_VERSION 1u
#define RULE_PATH_BENEATH 1

#define EXECUTE (1u << 0)
#define WRITE_FILE (1u << 1)
#define READ_FILE (1u << 2)
#define READ_DIR (1u << 3)
#define TRUNCATE (1u << 14)
#define IOCTL_DEV (1u << 15)
/* What a rule for a file can contain. */
#define OF_FILES (EXECUTE | WRITE_FILE | READ_FILE | TRUNCATE | IOCTL_DEV)

struct ruleset {
    uint64_t files, ports, scopes;
};

struct path_rule {
    uint64_t allowed;
    int32_t path;
} __attribute__((packed));

static uint64_t allowed(enum access access)
{
    switch (access) {
    case ACCESS_READ:
        return EXECUTE | READ_FILE | READ_DIR;
    case ACCESS_WRITE:
        return WRITE_FILE | READ_FILE | READ_DIR | TRUNCATE;
    case ACCESS_DEVICE:
        return WRITE_FILE | READ_FILE | IOCTL_DEV;
    }
    abort();
}

/* Everything that this version of the kernel can refuse. */
static struct ruleset everything(long version, bool inet)
{
    static const unsigned file_rights[] = {0, 13, 14, 15, 15, 16};
    unsigned rights = file_rights[version < 5 ? version : 5];
    struct ruleset all = {.files = (1u << rights) - 1};
    if (version >= 4 && !inet)
        all.ports = 3; /* bind and connect */
    if (version >= 6)
        all.scopes = 3; /* abstract sockets and signals */
    return all;
}

static void add(int rules, const struct place *place, uint64_t known)
{
    struct stat status;
    int fd = open(place->path, O_PATH | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &status) < 0)
        fail("landlock %s", place->path);
    struct path_rule rule = {.allowed = allowed(place->access) & known, .path = fd};
    if (!S_ISDIR(status.st_mode))
        rule.allowed &= OF_FILES;
    if (syscall(SYS_landlock_add_rule, rules, RULE_PATH_BENEATH, &rule, 0) < 0)
        fail("landlock %s", place->path);
    close(fd);
}

bool landlock_restrict(const struct options *options)
{
    long version = syscall(SYS_landlock_create_ruleset, NULL, 0, ASK_VERSION);
    if (version < 1)
        return false;
    struct ruleset all = everything(version, options->net == NET_SLIRP);
    /* A kernel that knows fewer fields accepts the others if they are zero. */
    int rules = (int)syscall(SYS_landlock_create_ruleset, &all, sizeof all, 0);
    if (rules < 0)
        fail("landlock");
    /* The root of a jail contains nothing but the places. */
    struct place root = {"/", ACCESS_READ};
    bool jail = options->variant != VARIANT_NONE;
    if (jail)
        add(rules, &root, all.files);
    for (size_t i = 0; i < options->place_count; i++)
        if (!jail || options->places[i].access != ACCESS_READ)
            add(rules, &options->places[i], all.files);
    if (syscall(SYS_landlock_restrict_self, rules, 0) < 0)
        fail("landlock");
    close(rules);
    return true;
}
