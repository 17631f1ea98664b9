/* Stat records of one path, or of every entry below a directory. The protocol defines the layout. */
#include <dirent.h>
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

#define OUT 65536
#define DEPTH_MAX 64 /* a listing holds one descriptor for each level */

static uint8_t out[OUT + STAT_MAX];
static size_t out_len;

static int flush(void)
{
    int r = write_all(1, out, out_len);
    out_len = 0;
    return r;
}

static char type_letter(mode_t mode)
{
    switch (mode & S_IFMT) {
    case S_IFDIR: return 'd';
    case S_IFLNK: return 'l';
    case S_IFIFO: return 'p';
    case S_IFSOCK: return 's';
    case S_IFBLK: return 'b';
    case S_IFCHR: return 'c';
    }
    return 'f';
}

static uint8_t *put_text(uint8_t *p, const char *text, size_t max)
{
    size_t n = strnlen(text, max);
    put_u16(p, (uint16_t)n);
    memcpy(p + 2, text, n);
    return p + 2 + n;
}

/* The path and status of the file that a link leads to; false for a link that leads nowhere. */
static bool follow(int dir, const char *path, struct stat *st, char *real)
{
    char self[64 + PATH_MAX];
    if (fstatat(dir, path, st, 0) < 0)
        return false;
    if (dir == AT_FDCWD)
        return realpath(path, real) != NULL;
    snprintf(self, sizeof self, "/proc/self/fd/%d/%s", dir, path);
    return realpath(self, real) != NULL;
}

size_t stat_record(uint8_t *dst, int dir, const char *path, const char *name, const struct stat *st)
{
    static char target[PATH_MAX + 1], real[PATH_MAX];
    struct stat end;
    uint8_t *p = dst;
    target[0] = real[0] = 0;
    *p = (uint8_t)type_letter(st->st_mode);
    put_u32(p + 1, st->st_mode & 07777);
    put_u64(p + 5, (uint64_t)st->st_size);
    put_u64(p + 13, (uint64_t)st->st_mtim.tv_sec * 1000000000 + (uint64_t)st->st_mtim.tv_nsec);
    put_u32(p + 21, st->st_uid);
    put_u32(p + 25, st->st_gid);
    p[29] = 0;
    put_u32(p + 30, 0);
    if (S_ISLNK(st->st_mode)) {
        ssize_t n = readlinkat(dir, path, target, PATH_MAX);
        target[n < 0 ? 0 : n] = 0; /* removed in the meantime: the record still has its type */
        if (follow(dir, path, &end, real)) {
            p[29] = (uint8_t)type_letter(end.st_mode);
            put_u32(p + 30, end.st_mode & 07777);
        } else {
            real[0] = 0;
        }
    }
    p = put_text(p + 34, name, PATH_MAX);
    p = put_text(p, target, PATH_MAX);
    p = put_text(p, owner_name(st->st_uid), OWNER_MAX);
    p = put_text(p, group_name(st->st_gid), OWNER_MAX);
    p = put_text(p, real, PATH_MAX);
    return (size_t)(p - dst);
}

static int add(int dir, const char *path, const char *name, const struct stat *st)
{
    out_len += stat_record(out + out_len, dir, path, name, st);
    return out_len >= OUT ? flush() : 0;
}

int file_stat(const struct start *s)
{
    struct stat st;
    if (fstatat(AT_FDCWD, s->path, &st, s->flags & START_FOLLOW ? 0 : AT_SYMLINK_NOFOLLOW) < 0)
        return report_error("stat", s->path);
    if (add(AT_FDCWD, s->path, s->path, &st) < 0 || flush() < 0)
        return report_error("send", s->path);
    return 0;
}

/* Adds the entries of an open directory, which it closes. `prefix` is its path below the listed one. */
static int list_directory(int fd, const char *prefix, uint32_t depth)
{
    char name[PATH_MAX];
    DIR *d = fdopendir(fd);
    if (!d) {
        int err = report_error("open directory", prefix);
        close(fd);
        return err;
    }
    int err = 0;
    while (!err) {
        struct stat st;
        errno = 0;
        struct dirent *e = readdir(d);
        if (!e && errno)
            err = report_error("read directory", *prefix ? prefix : ".");
        if (!e)
            break;
        if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0)
            continue;
        if (fstatat(fd, e->d_name, &st, AT_SYMLINK_NOFOLLOW) < 0) {
            if (errno != ENOENT) /* removed while listing */
                err = report_error("stat", e->d_name);
            continue;
        }
        if (!*prefix)
            text_copy(name, sizeof name, e->d_name);
        else if (!join_path(name, sizeof name, prefix, e->d_name))
            continue; /* no call can name it */
        if (add(fd, e->d_name, name, &st) < 0)
            err = report_error("send", name);
        if (err || depth <= 1 || !S_ISDIR(st.st_mode))
            continue;
        int sub = openat(fd, e->d_name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        /* One that the user cannot read, or that was removed, has an entry of its own and no entries below it. */
        if (sub >= 0)
            err = list_directory(sub, name, depth - 1);
    }
    closedir(d);
    return err;
}

int file_list(const struct start *s)
{
    uint32_t depth = s->depth < 1 ? 1 : s->depth > DEPTH_MAX ? DEPTH_MAX : s->depth;
    struct stat st;
    int fd = open(s->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &st) < 0)
        return report_error("open directory", s->path);
    if (add(AT_FDCWD, s->path, s->path, &st) < 0)
        return report_error("send", s->path);
    int err = list_directory(fd, "", depth);
    if (err)
        return err;
    return flush() < 0 ? report_error("send", s->path) : 0;
}
