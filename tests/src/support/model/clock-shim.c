/*
 * Preloaded into a daemon: its wall clock is off by the number of seconds in the file that FORKD_TEST_CLOCK
 * names (one int64), which a test changes while the daemon runs. Other clocks are as they are.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static volatile int64_t *offset;
static int (*next_clock)(clockid_t, struct timespec *);

__attribute__((constructor)) static void open_offset(void)
{
    const char *path = getenv("FORKD_TEST_CLOCK");
    int fd = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    void *map = fd < 0 ? MAP_FAILED : mmap(NULL, sizeof *offset, PROT_READ, MAP_SHARED, fd, 0);
    if (map != MAP_FAILED)
        offset = map;
    if (fd >= 0)
        close(fd);
}

int clock_gettime(clockid_t clock, struct timespec *now)
{
    if (!next_clock)
        next_clock = (int (*)(clockid_t, struct timespec *))dlsym(RTLD_NEXT, "clock_gettime");
    int result = next_clock(clock, now);
    if (result == 0 && offset && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE))
        now->tv_sec += *offset;
    return result;
}

int gettimeofday(struct timeval *restrict now, void *restrict zone)
{
    struct timespec exact;
    (void)zone;
    if (clock_gettime(CLOCK_REALTIME, &exact) != 0)
        return -1;
    now->tv_sec = exact.tv_sec;
    now->tv_usec = exact.tv_nsec / 1000;
    return 0;
}

time_t time(time_t *result)
{
    struct timespec exact;
    clock_gettime(CLOCK_REALTIME, &exact);
    if (result)
        *result = exact.tv_sec;
    return exact.tv_sec;
}
