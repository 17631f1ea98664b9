/* Copies a tree to another file system: content, mode, owner and times. Links stay links. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "util.h"
#include "files/builtin.h"

#define CHUNK 65536

static int copy_file(const char *from, const char *to)
{
    static char buf[CHUNK];
    int in = open(from, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    int out = in < 0 ? -1 : open(to, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    ssize_t n = -1;
    if (out >= 0)
        while ((n = read(in, buf, sizeof buf)) > 0)
            if (write_all(out, buf, (size_t)n) < 0) {
                n = -1;
                break;
            }
    if (n == 0 && fsync(out) < 0)
        n = -1;
    int err = errno;
    if (in >= 0)
        close(in);
    if (out >= 0)
        close(out);
    errno = err;
    return n < 0 ? -1 : 0;
}

static int copy_link(const char *from, const char *to)
{
    char target[PATH_MAX];
    ssize_t n = readlink(from, target, sizeof target - 1);
    if (n < 0)
        return -1;
    target[n] = 0;
    return symlink(target, to);
}

static int copy_directory(const char *from, const char *to)
{
    char a[PATH_MAX], b[PATH_MAX];
    DIR *d = mkdir(to, 0700) < 0 ? NULL : opendir(from);
    if (!d)
        return -1;
    struct dirent *e;
    while ((errno = 0, e = readdir(d))) {
        if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0)
            continue;
        if (!join_path(a, sizeof a, from, e->d_name) || !join_path(b, sizeof b, to, e->d_name) || tree_copy(a, b) < 0)
            break;
    }
    int err = errno;
    closedir(d);
    errno = err;
    return err ? -1 : 0;
}

int tree_copy(const char *from, const char *to)
{
    struct stat st;
    int r;
    if (lstat(from, &st) < 0)
        return -1;
    if (S_ISDIR(st.st_mode))
        r = copy_directory(from, to);
    else if (S_ISLNK(st.st_mode))
        r = copy_link(from, to);
    else if (S_ISREG(st.st_mode))
        r = copy_file(from, to);
    else
        r = mknod(to, st.st_mode, st.st_rdev);
    if (r < 0)
        return -1;
    struct timespec times[2] = {st.st_atim, st.st_mtim};
    /* Only root can keep the owner. The mode is set after it, because chown clears set-id bits. */
    if (lchown(to, st.st_uid, st.st_gid) < 0 && errno != EPERM)
        return -1;
    if (!S_ISLNK(st.st_mode) && chmod(to, st.st_mode & 07777) < 0)
        return -1;
    return utimensat(AT_FDCWD, to, times, AT_SYMLINK_NOFOLLOW);
}
