/* Stat records of one path, or of every entry of a directory. The protocol defines the layout. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "util.h"
#include "files/builtin.h"

#define RECORD_MAX (1 + 4 + 8 + 8 + 4 + 4 + 2 + PATH_MAX + 2 + PATH_MAX)
#define OUT 65536

static uint8_t out[OUT + RECORD_MAX];
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

static int add(int dir, const char *path, const char *name, const struct stat *st)
{
    uint8_t *p = out + out_len;
    size_t n = strnlen(name, PATH_MAX);
    ssize_t link = 0;
    *p = (uint8_t)type_letter(st->st_mode);
    put_u32(p + 1, st->st_mode & 07777);
    put_u64(p + 5, (uint64_t)st->st_size);
    put_u64(p + 13, (uint64_t)st->st_mtim.tv_sec * 1000000000 + (uint64_t)st->st_mtim.tv_nsec);
    put_u32(p + 21, st->st_uid);
    put_u32(p + 25, st->st_gid);
    put_u16(p + 29, (uint16_t)n);
    memcpy(p + 31, name, n);
    p += 31 + n;
    if (S_ISLNK(st->st_mode) && (link = readlinkat(dir, path, (char *)p + 2, PATH_MAX)) < 0)
        link = 0; /* removed in the meantime: the record still has its type */
    put_u16(p, (uint16_t)link);
    out_len = (size_t)(p + 2 + link - out);
    return out_len >= OUT ? flush() : 0;
}

int file_stat(const struct start *s)
{
    struct stat st;
    const char *slash = strrchr(s->path, '/');
    if (fstatat(AT_FDCWD, s->path, &st, s->flags & START_FOLLOW ? 0 : AT_SYMLINK_NOFOLLOW) < 0)
        return report_error("stat", s->path);
    if (add(AT_FDCWD, s->path, slash && slash[1] ? slash + 1 : s->path, &st) < 0 || flush() < 0)
        return report_error("send", s->path);
    return 0;
}

int file_list(const struct start *s)
{
    DIR *d = opendir(s->path);
    if (!d)
        return report_error("open directory", s->path);
    for (;;) {
        struct stat st;
        errno = 0;
        struct dirent *e = readdir(d);
        if (!e && errno)
            return report_error("read directory", s->path);
        if (!e)
            break;
        if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0)
            continue;
        if (fstatat(dirfd(d), e->d_name, &st, AT_SYMLINK_NOFOLLOW) < 0) {
            if (errno == ENOENT)
                continue; /* removed while listing */
            return report_error("stat", e->d_name);
        }
        if (add(dirfd(d), e->d_name, e->d_name, &st) < 0)
            return report_error("send", s->path);
    }
    return flush() < 0 ? report_error("send", s->path) : 0;
}
