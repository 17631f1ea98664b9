/* Selects the operation of a kind; error lines, read and mkdir. */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "util.h"
#include "files/builtin.h"

#define CHUNK 65536

int report_error(const char *verb, const char *path) { return report_text(verb, path, strerror(errno), errno); }

int report_text(const char *verb, const char *path, const char *reason, int err)
{
    char line[1024];
    size_t n = text_copy(line, sizeof line, "cannot ");
    n += text_copy(line + n, sizeof line - n, verb);
    n += text_copy(line + n, sizeof line - n, " '");
    n += text_copy(line + n, 768, path);
    n += text_copy(line + n, sizeof line - n, "': ");
    n += text_copy(line + n, sizeof line - n, reason);
    for (size_t i = 0; i < n; i++)
        if (line[i] == '\n')
            line[i] = '?'; /* an error is one line, also for a name with a line break */
    n += text_copy(line + n, sizeof line - n, "\n");
    (void)!write(2, line, n);
    return err;
}

bool join_path(char *dst, size_t size, const char *dir, const char *name)
{
    size_t n = strlen(dir), m = strlen(name);
    if (n + m + 2 > size) {
        errno = ENAMETOOLONG;
        return false;
    }
    memcpy(dst, dir, n);
    if (n == 0 || dir[n - 1] != '/')
        dst[n++] = '/';
    memcpy(dst + n, name, m + 1);
    return true;
}

int file_read(const struct start *s)
{
    static char buf[CHUNK];
    uint64_t left = s->limit ? s->limit : UINT64_MAX;
    struct stat st;
    int fd = open(s->path, O_RDONLY | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &st) < 0)
        return report_error("open", s->path);
    if (S_ISDIR(st.st_mode)) {
        errno = EISDIR;
        return report_error("read", s->path);
    }
    if (s->offset && lseek(fd, (off_t)s->offset, SEEK_SET) < 0)
        return report_error("seek", s->path);
    while (left > 0) {
        ssize_t n = read(fd, buf, left < CHUNK ? (size_t)left : CHUNK);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return report_error("read", s->path);
        if (n == 0)
            break;
        if (write_all(1, buf, (size_t)n) < 0)
            return report_error("send", s->path);
        left -= (uint64_t)n;
    }
    return 0;
}

int file_mkdir(const struct start *s)
{
    mode_t mode = s->mode ? s->mode : 0755;
    struct stat st;
    if ((s->flags & START_RECURSIVE) && make_parents(s->path, 0755) < 0)
        return report_error("create the parent directories of", s->path);
    if (mkdir(s->path, 0777) < 0) {
        if (errno == EEXIST && (s->flags & START_RECURSIVE) && stat(s->path, &st) == 0 && S_ISDIR(st.st_mode))
            return 0;
        return report_error("create directory", s->path);
    }
    if (chmod(s->path, mode & 07777) < 0) /* the umask must not change the requested mode */
        return report_error("set the mode of", s->path);
    return 0;
}

int builtin_run(const struct start *s)
{
    switch (s->kind) {
    case KIND_READ: return file_read(s);
    case KIND_WRITE: return file_write(s);
    case KIND_LIST: return file_list(s);
    case KIND_STAT: return file_stat(s);
    case KIND_MKDIR: return file_mkdir(s);
    case KIND_MOVE: return file_move(s);
    case KIND_REMOVE: return file_remove(s);
    case KIND_CHMOD: return file_chmod(s);
    case KIND_CONNECT: return tcp_connect(s);
    case KIND_WATCH: return file_watch(s);
    }
    return ENOSYS;
}
