/*
 * Writes a file so that a reader sees the old or the new content, never a part.
 *
 * The content goes to an unnamed file (O_TMPFILE) in the directory of the target. The file gets a name when
 * it is complete and synced, so a killed writer leaves nothing behind. File systems without O_TMPFILE get a
 * named file.
 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "util.h"
#include "files/builtin.h"

#define CHUNK 65536

/* Reads stdin until the host closes it with INPUT_EOF. */
static int copy_input(int fd)
{
    static char buf[CHUNK];
    for (;;) {
        ssize_t n = read(0, buf, sizeof buf);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return (int)n;
        if (write_all(fd, buf, (size_t)n) < 0)
            return -1;
    }
}

static int write_in_place(const struct start *s, const char *path, mode_t mode)
{
    int flags = O_WRONLY | O_CLOEXEC | O_NOCTTY | (s->flags & START_APPEND ? O_APPEND : O_TRUNC);
    bool fresh = true;
    int fd = open(path, flags | O_CREAT | O_EXCL, 0600);
    if (fd < 0 && errno == EEXIST && !(s->flags & START_EXCLUSIVE)) {
        fresh = false;
        fd = open(path, flags);
    }
    if (fd < 0 || (fresh && fchmod(fd, mode) < 0))
        return report_error("open", path);
    if (copy_input(fd) < 0)
        return report_error("write", path);
    if (fsync(fd) < 0 && errno != EINVAL && errno != EROFS)
        return report_error("sync", path);
    return close(fd) < 0 ? report_error("close", path) : 0;
}

/* Opens a temporary file in the directory of the target; `name` is the name to link it to. */
static int open_temporary(const char *path, char *name, size_t size)
{
    char dir[PATH_MAX];
    strcpy(dir, path);
    char *slash = strrchr(dir, '/');
    if (slash)
        slash[slash == dir] = 0;
    else
        strcpy(dir, ".");
    int n = snprintf(name, size, "%s/.forkd-%d-%s", dir, (int)getpid(), slash ? strrchr(path, '/') + 1 : path);
    if (n < 0 || (size_t)n >= size || n - (int)strlen(dir) - 1 > NAME_MAX)
        snprintf(name, size, "%s/.forkd-%d", dir, (int)getpid());
    int fd = open(dir, O_TMPFILE | O_WRONLY | O_CLOEXEC, 0600);
    if (fd >= 0 || (errno != EOPNOTSUPP && errno != EISDIR && errno != EINVAL))
        return fd;
    unlink(name);
    return open(name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
}

static int link_to(int fd, const char *name)
{
    char self[64];
    struct stat st;
    if (fstat(fd, &st) == 0 && st.st_nlink > 0)
        return 0; /* created with its name */
    unlink(name);
    snprintf(self, sizeof self, "/proc/self/fd/%d", fd);
    return linkat(AT_FDCWD, self, AT_FDCWD, name, AT_SYMLINK_FOLLOW);
}

static int replace(const struct start *s, const char *path, const struct stat *old, mode_t mode)
{
    char name[PATH_MAX];
    int fd = open_temporary(path, name, sizeof name);
    if (fd < 0)
        return report_error("create a temporary file beside", path);
    int err = 0;
    if (old && (old->st_uid != geteuid() || old->st_gid != getegid()))
        (void)!fchown(fd, old->st_uid, old->st_gid); /* only root can change the owner */
    if (copy_input(fd) < 0 || fchmod(fd, old ? old->st_mode & 07777 : mode) < 0)
        err = report_error("write", path);
    else if (fsync(fd) < 0)
        err = report_error("sync", path);
    else if (link_to(fd, name) < 0 ||
             renameat2(AT_FDCWD, name, AT_FDCWD, path, s->flags & START_EXCLUSIVE ? RENAME_NOREPLACE : 0) < 0)
        err = report_error("rename to", path);
    if (err)
        unlink(name);
    return err;
}

int file_write(const struct start *s)
{
    char real[PATH_MAX];
    const char *path = s->path;
    mode_t mode = s->mode ? s->mode & 07777 : 0644;
    struct stat st;
    if (strlen(path) >= sizeof real) {
        errno = ENAMETOOLONG;
        return report_error("write", path);
    }
    if (make_parents(path, 0755) < 0)
        return report_error("create the parent directories of", path);
    if (s->flags & (START_APPEND | START_IN_PLACE))
        return write_in_place(s, path, mode);
    bool exists = lstat(path, &st) == 0;
    if (exists && (s->flags & START_EXCLUSIVE)) {
        errno = EEXIST;
        return report_error("write", path);
    }
    /* A link stays a link: the file that it points to is replaced. */
    if (exists && S_ISLNK(st.st_mode) && realpath(path, real)) {
        path = real;
        exists = stat(path, &st) == 0;
    }
    if (exists && S_ISDIR(st.st_mode)) {
        errno = EISDIR;
        return report_error("write", path);
    }
    if (exists && S_ISREG(st.st_mode) && access(path, W_OK) < 0)
        return report_error("write", path);
    if (exists && !S_ISREG(st.st_mode) && !S_ISLNK(st.st_mode))
        return write_in_place(s, path, mode); /* a device or FIFO cannot be replaced */
    return replace(s, path, exists && S_ISREG(st.st_mode) ? &st : NULL, mode);
}
