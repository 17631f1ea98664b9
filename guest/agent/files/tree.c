/* Operations on whole trees: move, remove, chmod. Symbolic links are never followed below the named path. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "util.h"
#include "files/builtin.h"

static bool is_dot(const char *name) { return strcmp(name, ".") == 0 || strcmp(name, "..") == 0; }

/* Removes the entries of a directory. Uses descriptors, so that a path replaced by a link does no harm. */
static int empty_directory(int parent, const char *name)
{
    int fd = openat(parent, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    DIR *d = fd < 0 ? NULL : fdopendir(fd);
    if (!d)
        return -1;
    struct dirent *e;
    int r = 0;
    while (r == 0 && (errno = 0, e = readdir(d))) {
        if (is_dot(e->d_name) || unlinkat(fd, e->d_name, 0) == 0)
            continue;
        if (errno != EISDIR && errno != ENOENT)
            r = -1;
        else if (errno != ENOENT && (empty_directory(fd, e->d_name) < 0 || unlinkat(fd, e->d_name, AT_REMOVEDIR) < 0))
            r = -1;
    }
    int err = errno;
    closedir(d);
    errno = err;
    return r < 0 || err ? -1 : 0;
}

int tree_remove(const char *path)
{
    if (unlink(path) == 0)
        return 0;
    if (errno != EISDIR)
        return -1;
    if (empty_directory(AT_FDCWD, path) < 0)
        return -1;
    return rmdir(path);
}

int file_remove(const struct start *s)
{
    struct stat st;
    if (lstat(s->path, &st) < 0)
        return report_error("remove", s->path);
    int r = s->flags & START_RECURSIVE ? tree_remove(s->path) : S_ISDIR(st.st_mode) ? rmdir(s->path) : unlink(s->path);
    return r < 0 ? report_error("remove", s->path) : 0;
}

int file_move(const struct start *s)
{
    if (make_parents(s->path2, 0755) < 0)
        return report_error("create the parent directories of", s->path2);
    if (rename(s->path, s->path2) == 0)
        return 0;
    if (errno != EXDEV)
        return report_error("move", s->path);
    /* To another file system: copy, then rename, so that the target is complete or absent. */
    char temporary[PATH_MAX];
    if (snprintf(temporary, sizeof temporary, "%s.forkd-%d", s->path2, (int)getpid()) >= (int)sizeof temporary) {
        errno = ENAMETOOLONG;
        return report_error("move to", s->path2);
    }
    if (tree_copy(s->path, temporary) < 0 || rename(temporary, s->path2) < 0) {
        int err = report_error("copy", s->path);
        tree_remove(temporary);
        return err;
    }
    return tree_remove(s->path) < 0 ? report_error("remove", s->path) : 0;
}

static int chmod_tree(int parent, const char *name, mode_t mode)
{
    struct stat st;
    if (fstatat(parent, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
        return -1;
    if (S_ISLNK(st.st_mode))
        return 0;
    if (S_ISDIR(st.st_mode)) {
        /* Entries first: the new mode may deny access to the directory. */
        int fd = openat(parent, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        DIR *d = fd < 0 ? NULL : fdopendir(fd);
        if (!d)
            return -1;
        struct dirent *e;
        while ((errno = 0, e = readdir(d)))
            if (!is_dot(e->d_name) && chmod_tree(fd, e->d_name, mode) < 0)
                break;
        int err = errno;
        closedir(d);
        if (err) {
            errno = err;
            return -1;
        }
    }
    return fchmodat(parent, name, mode, 0);
}

int file_chmod(const struct start *s)
{
    mode_t mode = s->mode & 07777;
    int r = s->flags & START_RECURSIVE ? chmod_tree(AT_FDCWD, s->path, mode) : chmod(s->path, mode);
    return r < 0 ? report_error("change the mode of", s->path) : 0;
}
