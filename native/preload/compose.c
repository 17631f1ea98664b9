/*
 * Gives a VMM its memory from several files, which it knows as one: $FORKD_MEMORY_VIEW, a view
 * (docs/spec/memory-view.md). Opening that path opens the base of the view. When the VMM maps the base, the runs of
 * pages from layer files are mapped over it, privately too.
 *
 * Where this library is not loaded, the VMM opens the view itself and refuses it, because it is smaller than the
 * memory. Whatever is not as the view says ends the process: a guest must not run with wrong memory.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "../view/view.h"
#include "preload.h"

#define EXPORT __attribute__((visibility("default")))
#define EXIT_CODE 70

static struct view view;
static int files[VIEW_FILES];
static bool opened, mapped;

static _Noreturn void __attribute__((format(printf, 1, 2))) refuse(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    fprintf(stderr, "forkd: cannot use the memory view: ");
    vfprintf(stderr, format, args);
    fputc('\n', stderr);
    fflush(stderr);
    _exit(EXIT_CODE);
}

/* Not the functions of this library. */
static int open_file(const char *path)
{
    int fd = (int)syscall(SYS_openat, AT_FDCWD, path, O_RDONLY | O_CLOEXEC, 0);
    if (fd < 0)
        refuse("cannot open %s: %s", path, strerror(errno));
    return fd;
}

static void *map(void *address, size_t bytes, int protection, int flags, int fd, off_t offset)
{
    return (void *)syscall(SYS_mmap, address, bytes, protection, flags, fd, offset);
}

bool compose_is_view(const char *path)
{
    const char *name = getenv("FORKD_MEMORY_VIEW");
    return name && path && strcmp(path, name) == 0;
}

int compose_open(void)
{
    if (opened)
        refuse("it is opened twice");
    int fd = open_file(getenv("FORKD_MEMORY_VIEW"));
    size_t length;
    const char *why;
    /* Never freed: the paths are in it. */
    uint8_t *data = view_load(fd, &length);
    if (!data)
        refuse("cannot read it: %s", strerror(errno));
    close(fd);
    if (!view_parse(data, length, &view, &why))
        refuse("%s", why);
    for (uint32_t i = 0; i < view.files; i++) {
        struct stat status;
        files[i] = open_file(view.file[i].path);
        if (fstat(files[i], &status) < 0 || !S_ISREG(status.st_mode) || !view_same(&view.file[i], &status))
            refuse("%s has changed", view.file[i].path);
    }
    opened = true;
    return files[0];
}

/* The descriptor may be a copy of the one that was given out. */
static bool is_base(int fd)
{
    struct stat status;
    return fstat(fd, &status) == 0 && (uint64_t)status.st_ino == view.file[0].inode &&
           (uint64_t)status.st_dev == view.file[0].device;
}

static void compose(uint8_t *memory, int protection, int flags)
{
    int how = MAP_PRIVATE | MAP_FIXED | (flags & MAP_NORESERVE);
    for (uint32_t i = 0; i < view.segments; i++) {
        struct view_segment segment = view_segment(&view, i);
        void *at = memory + segment.guest;
        if (map(at, segment.bytes, protection, how, files[segment.file], (off_t)segment.offset) != at)
            refuse("cannot map %s: %s", view.file[segment.file].path, strerror(errno));
    }
    for (uint32_t i = 1; i < view.files; i++)
        close(files[i]);
}

static void *map_any(void *address, size_t bytes, int protection, int flags, int fd, off_t offset)
{
    if (!opened || fd < 0 || !is_base(fd))
        return map(address, bytes, protection, flags, fd, offset);
    if (mapped || offset != 0 || bytes != view.bytes || (flags & MAP_TYPE) != MAP_PRIVATE)
        refuse("the VMM maps it in an unknown way");
    void *memory = map(address, bytes, protection, flags, fd, offset);
    /* The VMM reports the failure. */
    if (memory == MAP_FAILED)
        return memory;
    mapped = true;
    compose(memory, protection, flags);
    return memory;
}

EXPORT void *mmap(void *address, size_t bytes, int protection, int flags, int fd, off_t offset)
{
    return map_any(address, bytes, protection, flags, fd, offset);
}

EXPORT void *mmap64(void *address, size_t bytes, int protection, int flags, int fd, off64_t offset)
{
    return map_any(address, bytes, protection, flags, fd, offset);
}
