/*
 * Makes a userfaultfd of the VMM, with which the host sees later which pages of the guest are written
 * (native/pages/track.c). Only a process itself can make one, and the system call filter refuses the call; the
 * launcher has opened the device that offers the same. Its descriptor, $FORKD_TRACK, becomes the userfaultfd, so
 * that the device is closed before the VMM begins.
 *
 * It is made for asynchronous write protection and nothing else: it never stops a thread.
 */
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <unistd.h>

/* Older headers lack these. */
#ifndef USERFAULTFD_IOC_NEW
#define USERFAULTFD_IOC_NEW _IO(0xAA, 0)
#endif
#define FEATURE_WP_ASYNC (1u << 15)

static int make(int device)
{
    struct uffdio_api api = {.api = UFFD_API, .features = FEATURE_WP_ASYNC};
    int fd = ioctl(device, USERFAULTFD_IOC_NEW, O_CLOEXEC | O_NONBLOCK | UFFD_USER_MODE_ONLY);
    if (fd < 0)
        return -1;
    if (ioctl(fd, UFFDIO_API, &api) == 0)
        return fd;
    close(fd);
    return -1;
}

__attribute__((constructor)) static void track(void)
{
    const char *text = getenv("FORKD_TRACK");
    int device = text ? atoi(text) : 0;
    if (device <= 2)
        return;
    /* Not for a program that this one may execute: there the descriptor is something else. */
    unsetenv("FORKD_TRACK");
    int fd = make(device);
    if (fd < 0 || dup3(fd, device, O_CLOEXEC) < 0)
        close(device);
    if (fd >= 0)
        close(fd);
}
