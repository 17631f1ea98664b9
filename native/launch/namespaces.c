/* Leaves the namespaces of the host. */
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <unistd.h>

#include "launch.h"

static void write_file(const char *path, const char *text)
{
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    if (fd < 0 || write(fd, text, strlen(text)) != (ssize_t)strlen(text))
        fail("%s", path);
    close(fd);
}

/* The user keeps its own ids: files and sockets look the same on both sides. */
static void map_ids(uid_t uid, gid_t gid)
{
    char line[64];
    write_file("/proc/self/setgroups", "deny");
    snprintf(line, sizeof line, "%u %u 1", uid, uid);
    write_file("/proc/self/uid_map", line);
    snprintf(line, sizeof line, "%u %u 1", gid, gid);
    write_file("/proc/self/gid_map", line);
}

void namespaces_enter(enum variant variant)
{
    uid_t uid = geteuid();
    gid_t gid = getegid();
    int spaces = CLONE_NEWNS | CLONE_NEWNET | CLONE_NEWIPC | CLONE_NEWUTS;
    if (unshare(spaces | (variant == VARIANT_USER ? CLONE_NEWUSER : 0)) < 0)
        fail("unshare");
    if (variant == VARIANT_USER)
        map_ids(uid, gid);
    /* The host's name is not the guest's business. */
    if (sethostname("forkd", 5) < 0 || setdomainname("", 0) < 0)
        fail("hostname");
    if (mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0)
        fail("private mounts");
}
