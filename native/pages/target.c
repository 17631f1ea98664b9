/* The process whose memory is captured. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/uio.h>
#include <unistd.h>

#include "pages.h"

static bool ended(const struct target *target)
{
    struct pollfd one = {.fd = target->pidfd, .events = POLLIN};
    return poll(&one, 1, 0) > 0;
}

void target_unreadable(const struct target *target, int err)
{
    if (err == ENOENT || err == ESRCH || (target->pidfd >= 0 && ended(target)))
        fail(ESRCH, "process %d has exited", target->pid);
    if (err == EPERM || err == EACCES)
        fail(EPERM, "cannot read the memory of process %d", target->pid);
    fail(EIO, "cannot read the memory of process %d (error %d)", target->pid, err);
}

/*
 * An exiting process frees its memory first and is reported as exited later. While one byte can be read, all
 * memory is still there; while the process is not reported as exited, the pid still belongs to it.
 */
void target_check(const struct target *target)
{
    uint8_t byte;
    uint64_t left;
    struct iovec local = {&byte, 1}, remote = {(void *)pieces_address(&target->pieces, 0, &left), 1};
    if (process_vm_readv(target->pid, &local, 1, &remote, 1, 0) != 1)
        target_unreadable(target, errno);
    if (ended(target))
        fail(ESRCH, "process %d has exited", target->pid);
}

static bool read_file_pieces(FILE *maps, struct target *target, const char *memory, const char **why)
{
    struct stat st;
    char path[PATH_MAX];
    if (stat(memory, &st) < 0 || !realpath(memory, path))
        fail(errno, "cannot find \"%s\"", memory);
    struct file_name file = {
        .major = major(st.st_dev), .minor = minor(st.st_dev), .inode = st.st_ino, .path = path};
    return pieces_read(maps, &file, target->bytes, &target->pieces, why);
}

static bool read_view_pieces(FILE *maps, struct target *target, const char *memory, const char **why)
{
    int fd = open(memory, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        fail(errno, "cannot find \"%s\"", memory);
    size_t length;
    uint8_t *data = view_load(fd, &length);
    if (!data)
        fail(errno, "cannot read \"%s\"", memory);
    close(fd);
    struct view view;
    if (!view_parse(data, length, &view, why))
        fail(EINVAL, "cannot use the memory view \"%s\": %s", memory, *why);
    if (view.bytes != target->bytes)
        fail(EINVAL, "the memory view \"%s\" has another memory size", memory);
    bool good = region_read(maps, &view, &target->pieces, why);
    free(data);
    return good;
}

static void find_pieces(struct target *target, const char *memory, bool is_view)
{
    char name[64];
    snprintf(name, sizeof name, "/proc/%d/maps", target->pid);
    FILE *maps = fopen(name, "re");
    if (!maps)
        target_unreadable(target, errno);
    const char *why;
    bool good = (is_view ? read_view_pieces : read_file_pieces)(maps, target, memory, &why);
    if (!good) {
        if (ended(target))
            fail(ESRCH, "process %d has exited", target->pid);
        fail(EINVAL, "\"%s\" %s by process %d", memory, why, target->pid);
    }
    fclose(maps);
}

void target_open(struct target *target, pid_t pid, const char *memory, bool is_view, uint64_t bytes)
{
    char name[64];
    *target = (struct target){.pid = pid, .pidfd = -1, .pagemap = -1, .bytes = bytes};
    target->pidfd = (int)syscall(SYS_pidfd_open, pid, 0);
    if (target->pidfd < 0)
        target_unreadable(target, errno);
    snprintf(name, sizeof name, "/proc/%d/pagemap", pid);
    target->pagemap = open(name, O_RDONLY | O_CLOEXEC);
    if (target->pagemap < 0)
        target_unreadable(target, errno);
    find_pieces(target, memory, is_view);
    target_check(target);
}
