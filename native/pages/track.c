/*
 * Finds out which pages a process writes while it runs, by userfaultfd in asynchronous write-protect mode (Linux
 * 6.7): the first write to a protected page removes the protection, in the kernel. No process has to answer
 * anything, so the process runs on whatever happens to us.
 *
 * A userfaultfd belongs to the process that made it. The VMM has one from its start (native/preload/track.c), and
 * we borrow it. A VMM that was taken over may have put something else there. What we borrow must be a
 * userfaultfd without any other feature: such a one can wait for nothing and deliver nothing. One of another
 * process protects no page of this process, and then all pages count as written.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/userfaultfd.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "pages.h"

/* Headers before Linux 6.7 lack these. */
#define FEATURE_FAULT_FLAG_WP (1u << 0)
#define FEATURE_WP_UNPOPULATED (1u << 13)
#define FEATURE_WP_ASYNC (1u << 15)
/* The kernel's own mark of a descriptor that has its features. */
#define FEATURE_INITIALIZED (1u << 31)
#ifndef USERFAULTFD_IOC_NEW
#define USERFAULTFD_IOC_NEW _IO(0xAA, 0)
#endif

/* The kernel adds the second and the third to the first. */
#define FEATURES (FEATURE_WP_ASYNC | FEATURE_WP_UNPOPULATED | FEATURE_FAULT_FLAG_WP)

#define CHUNK (4ull << 20)

static bool is_userfaultfd(int fd)
{
    static const char name[] = "anon_inode:[userfaultfd]";
    char path[64], found[64];
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(path, found, sizeof found);
    return length == sizeof name - 1 && memcmp(found, name, sizeof name - 1) == 0;
}

static bool has_our_features(int fd)
{
    char path[64], line[256];
    uint64_t api = 0;
    uint32_t features = 0;
    bool found = false;
    snprintf(path, sizeof path, "/proc/self/fdinfo/%d", fd);
    FILE *info = fopen(path, "re");
    while (info && !found && fgets(line, sizeof line, info))
        found = sscanf(line, "API: %" SCNx64 ":%" SCNx32 ":", &api, &features) == 2;
    if (info)
        fclose(info);
    return found && api == UFFD_API && (features & FEATURE_WP_ASYNC) &&
           (features & ~(FEATURES | FEATURE_INITIALIZED)) == 0;
}

static bool register_all(const struct tracker *tracker)
{
    for (size_t i = 0; i < tracker->target->pieces.count; i++) {
        const struct piece *piece = &tracker->target->pieces.all[i];
        struct uffdio_register request = {.range = {.start = piece->address, .len = piece->bytes},
                                          .mode = UFFDIO_REGISTER_MODE_WP};
        if (ioctl(tracker->fd, UFFDIO_REGISTER, &request) < 0)
            return false;
    }
    return true;
}

bool tracker_open(struct tracker *tracker, const struct target *target, int number)
{
    int fd = (int)syscall(SYS_pidfd_getfd, target->pidfd, number, 0);
    *tracker = (struct tracker){.target = target, .fd = -1};
    if (fd < 0)
        return false;
    if (!is_userfaultfd(fd) || !has_our_features(fd)) {
        close(fd);
        return false;
    }
    tracker->fd = fd;
    if (register_all(tracker))
        return true;
    tracker_close(tracker);
    return false;
}

void tracker_close(struct tracker *tracker)
{
    if (tracker->fd < 0)
        return;
    /* No page fault of the process can be handled meanwhile, so it is done in short steps. */
    for (size_t i = 0; i < tracker->target->pieces.count; i++) {
        const struct piece *piece = &tracker->target->pieces.all[i];
        for (uint64_t at = 0; at < piece->bytes; at += CHUNK) {
            uint64_t length = piece->bytes - at < CHUNK ? piece->bytes - at : CHUNK;
            struct uffdio_range range = {.start = piece->address + at, .len = length};
            ioctl(tracker->fd, UFFDIO_UNREGISTER, &range);
        }
    }
    close(tracker->fd);
    tracker->fd = -1;
}

/* Before 6.8.10, protecting a page could lose the mark that it was written, and the process its content. */
static bool kernel_is_safe(void)
{
    struct utsname name;
    unsigned major = 0, minor = 0, patch = 0;
    if (uname(&name) < 0 || sscanf(name.release, "%u.%u.%u", &major, &minor, &patch) < 2)
        return false;
    return major > 6 || (major == 6 && (minor > 8 || (minor == 8 && patch >= 10)));
}

int tracking_command(void)
{
    if (!kernel_is_safe())
        fail(ENOTSUP, "Linux before 6.8.10 can lose writes of the VM meanwhile");
    struct uffdio_api api = {.api = UFFD_API, .features = FEATURE_WP_ASYNC};
    int device = open("/dev/userfaultfd", O_RDWR | O_CLOEXEC);
    if (device < 0)
        fail(errno, "cannot open /dev/userfaultfd: %s", strerror(errno));
    int fd = ioctl(device, USERFAULTFD_IOC_NEW, O_CLOEXEC | O_NONBLOCK | UFFD_USER_MODE_ONLY);
    if (fd < 0 || ioctl(fd, UFFDIO_API, &api) < 0)
        fail(ENOTSUP, "the kernel has no asynchronous write protection");
    printf("tracking\n");
    return 0;
}
