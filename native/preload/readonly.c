/*
 * Preloaded into VMMs that open the memory file of their snapshot for writing although they map it privately.
 * Opens exactly the path in $FORKD_READ_ONLY without write access. Nothing else changes.
 */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>

#include "preload.h"

#define EXPORT __attribute__((visibility("default")))

typedef int openat_function(int, const char *, int, ...);

/* On 64-bit Linux, all functions that open a path are this one. */
static int open_file(int dir, const char *path, int flags, mode_t mode)
{
    static openat_function *next;
    if (!next)
        *(void **)&next = dlsym(RTLD_NEXT, "openat"); /* POSIX allows this way from data to function pointers */
    if (!next) {
        errno = ENOSYS;
        return -1;
    }
    if (compose_is_view(path))
        return compose_open();
    const char *only = getenv("FORKD_READ_ONLY");
    if (only && path && (flags & O_ACCMODE) == O_RDWR && strcmp(path, only) == 0)
        flags = (flags & ~(O_ACCMODE | O_CREAT | O_TRUNC)) | O_RDONLY;
    return next(dir, path, flags, mode);
}

static mode_t mode_of(int flags, va_list args)
{
    return __OPEN_NEEDS_MODE(flags) ? va_arg(args, mode_t) : 0;
}

#define DEFINE_OPEN(name)                                                                                             \
    EXPORT int name(const char *path, int flags, ...)                                                                 \
    {                                                                                                                 \
        va_list args;                                                                                                 \
        va_start(args, flags);                                                                                        \
        mode_t mode = mode_of(flags, args);                                                                           \
        va_end(args);                                                                                                 \
        return open_file(AT_FDCWD, path, flags, mode);                                                                \
    }

#define DEFINE_OPENAT(name)                                                                                           \
    EXPORT int name(int dir, const char *path, int flags, ...)                                                        \
    {                                                                                                                 \
        va_list args;                                                                                                 \
        va_start(args, flags);                                                                                        \
        mode_t mode = mode_of(flags, args);                                                                           \
        va_end(args);                                                                                                 \
        return open_file(dir, path, flags, mode);                                                                     \
    }

/* Programs that are built with checks call these, if the flags are not constant. */
#define DEFINE_CHECKED_OPEN(name)                                                                                     \
    EXPORT int name(const char *path, int flags);                                                                     \
    EXPORT int name(const char *path, int flags) { return open_file(AT_FDCWD, path, flags, 0); }

#define DEFINE_CHECKED_OPENAT(name)                                                                                   \
    EXPORT int name(int dir, const char *path, int flags);                                                            \
    EXPORT int name(int dir, const char *path, int flags) { return open_file(dir, path, flags, 0); }

DEFINE_OPEN(open)
DEFINE_OPEN(open64)
DEFINE_OPENAT(openat)
DEFINE_OPENAT(openat64)
DEFINE_CHECKED_OPEN(__open_2)
DEFINE_CHECKED_OPEN(__open64_2)
DEFINE_CHECKED_OPENAT(__openat_2)
DEFINE_CHECKED_OPENAT(__openat64_2)
