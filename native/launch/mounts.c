/*
 * The root of the program: an empty tmpfs with mounts of single files and directories, at the paths that they
 * have outside.
 *
 * All sources are opened before the tmpfs hides /tmp. On Linux before 5.12, which cannot change the flags of a
 * whole tree, a directory with mounts in it is refused.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "launch.h"

/* C libraries before 2.36 lack these, and <linux/mount.h> conflicts with <sys/mount.h> of later ones. */
#define TREE_CLONE 1u
#define TREE_CLOEXEC O_CLOEXEC
#define TREE_RECURSIVE 0x8000u
#define MOVE_FROM_DESCRIPTOR 0x4u
#define FLAG_RDONLY 0x1u
#define FLAG_NOSUID 0x2u
#define FLAG_NODEV 0x4u
#define FLAG_NOEXEC 0x8u

struct flags {
    uint64_t set, clear, propagation, user_namespace;
};

struct source {
    int fd;
    bool tree; /* a detached copy; otherwise only a reference to the path */
    bool directory;
};

/* The first missing call decides for all mounts. */
static bool old_kernel;

static uint64_t flags_of(enum access access)
{
    switch (access) {
    case ACCESS_READ:
        return FLAG_RDONLY | FLAG_NOSUID | FLAG_NODEV;
    case ACCESS_WRITE:
        return FLAG_NOSUID | FLAG_NODEV | FLAG_NOEXEC;
    case ACCESS_DEVICE:
        /* Devices can still be written to; their nodes cannot be changed. */
        return FLAG_RDONLY | FLAG_NOSUID | FLAG_NOEXEC;
    }
    abort();
}

/* Flags are only added, so those that the user namespace has locked stay. */
static bool open_tree_of(const struct place *place, struct source *source)
{
    struct flags flags = {.set = flags_of(place->access)};
    unsigned how = TREE_CLONE | TREE_CLOEXEC | TREE_RECURSIVE;
    source->fd = (int)syscall(SYS_open_tree, AT_FDCWD, place->path, how);
    if (source->fd < 0)
        return false;
    unsigned where = AT_EMPTY_PATH | TREE_RECURSIVE;
    if (syscall(SYS_mount_setattr, source->fd, "", where, &flags, sizeof flags) == 0)
        return true;
    int err = errno;
    close(source->fd);
    errno = err;
    return false;
}

static void open_source(const struct place *place, struct source *source)
{
    source->tree = !old_kernel && open_tree_of(place, source);
    if (!source->tree) {
        if (!old_kernel && errno != ENOSYS)
            fail("mount %s", place->path);
        old_kernel = true;
        source->fd = open(place->path, O_PATH | O_CLOEXEC);
        if (source->fd < 0)
            fail("mount %s", place->path);
    }
    struct stat status;
    if (fstat(source->fd, &status) < 0)
        fail("mount %s", place->path);
    source->directory = S_ISDIR(status.st_mode);
    if (place->access == ACCESS_DEVICE && !S_ISCHR(status.st_mode))
        refuse("mount %s: not a character device", place->path);
}

/* An empty file in the new root. Names of one file need less memory of the kernel than as many files. */
static const char blank[] = ".blank";

static int make_entry(int root, const char *path, bool directory)
{
    int made = directory ? mkdirat(root, path, 0755) : linkat(root, blank, root, path, 0);
    return made == 0 || errno == EEXIST ? 0 : -1;
}

/* Makes the mount point; its parents only if they are missing. */
static void make_point(int root, const char *path, bool directory)
{
    if (make_entry(root, path, directory) == 0)
        return;
    char parent[4096];
    size_t length = strlen(path);
    if (errno != ENOENT || length >= sizeof parent)
        fail("mount point /%s", path);
    memcpy(parent, path, length + 1);
    for (char *slash = strchr(parent, '/'); slash; slash = strchr(slash + 1, '/')) {
        *slash = 0;
        if (*parent && make_entry(root, parent, true) < 0)
            fail("mount point /%s", parent);
        *slash = '/';
    }
    if (make_entry(root, path, directory) < 0)
        fail("mount point /%s", path);
}

/* A bind mount starts with the flags of its source; in a user namespace those must be given again. */
static unsigned long kept_flags(const char *path)
{
    static const struct {
        unsigned long from, to;
    } all[] = {{ST_RDONLY, MS_RDONLY}, {ST_NOSUID, MS_NOSUID},   {ST_NODEV, MS_NODEV},          {ST_NOEXEC, MS_NOEXEC},
               {ST_NOATIME, MS_NOATIME}, {ST_NODIRATIME, MS_NODIRATIME}, {ST_RELATIME, MS_RELATIME}};
    struct statvfs status;
    unsigned long flags = 0;
    if (statvfs(path, &status) < 0)
        fail("flags of %s", path);
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (status.f_flag & all[i].from)
            flags |= all[i].to;
    return flags;
}

/* The current directory is the new root. */
static void attach_old(const struct place *place, const struct source *source, const char *point)
{
    uint64_t wanted = flags_of(place->access);
    unsigned long flags = MS_REMOUNT | MS_BIND | MS_NOSUID;
    flags |= wanted & FLAG_RDONLY ? MS_RDONLY : 0;
    flags |= wanted & FLAG_NODEV ? MS_NODEV : 0;
    flags |= wanted & FLAG_NOEXEC ? MS_NOEXEC : 0;
    char from[64];
    snprintf(from, sizeof from, "/proc/self/fd/%d", source->fd);
    if (mount(from, point, NULL, MS_BIND, NULL) < 0)
        fail("mount %s", place->path);
    if (mount(NULL, point, NULL, flags | kept_flags(point), NULL) < 0)
        fail("remount %s", place->path);
}

static void attach(int root, const struct place *place, const struct source *source)
{
    const char *point = place->path + strspn(place->path, "/");
    make_point(root, point, source->directory);
    if (!source->tree)
        attach_old(place, source, point);
    else if (syscall(SYS_move_mount, source->fd, "", root, point, MOVE_FROM_DESCRIPTOR) < 0)
        fail("mount %s", place->path);
    close(source->fd);
}

void mounts_build(const struct place *places, size_t count)
{
    struct source *sources = calloc(count + 1, sizeof *sources);
    if (!sources)
        fail("mounts");
    for (size_t i = 0; i < count; i++)
        open_source(&places[i], &sources[i]);
    unsigned long flags = MS_NOSUID | MS_NODEV | MS_NOEXEC;
    if (mount("forkd", "/tmp", "tmpfs", flags, "size=1m,nr_inodes=4096,mode=0755") < 0)
        fail("tmpfs");
    int root = open("/tmp", O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (root < 0 || fchdir(root) < 0)
        fail("new root");
    mode_t before = umask(022);
    if (mknodat(root, blank, S_IFREG | 0444, 0) < 0)
        fail("mount points");
    for (size_t i = 0; i < count; i++)
        attach(root, &places[i], &sources[i]);
    if (unlinkat(root, blank, 0) < 0)
        fail("mount points");
    umask(before);
    /* Puts the old root on top of the new one, from where it is removed. */
    if (syscall(SYS_pivot_root, ".", ".") < 0)
        fail("pivot_root");
    if (umount2(".", MNT_DETACH) < 0)
        fail("old root");
    if (chdir("/") < 0 || mount(NULL, "/", NULL, MS_REMOUNT | MS_BIND | MS_RDONLY | flags, NULL) < 0)
        fail("read-only root");
    close(root);
    free(sources);
}
