/*
 * A process with guest memory for the tests: maps a file privately and changes it on command.
 *
 * test-mapper FILE BYTES [PIECES|shared|-] [TRACKED]   prints `ready`; then one line for each command:
 *   dirty FIRST COUNT STEP SEED     writes every STEP-th page, COUNT of them, each with its own content
 *   touch FIRST COUNT               reads pages
 *   discard FIRST COUNT             drops changes: the pages are those of the file again
 *   dump PATH                       writes the whole memory as the process sees it
 *   busy FIRST COUNT STEP           a thread writes these pages again and again, until `calm`
 *   calm
 *
 * TRACKED says what descriptor 8 is: `yes` is what a VMM has, the others are what one that was taken over may put
 * there: `events` a userfaultfd that stops threads, `fresh` one without features, `other` that of another
 * process, `pipe`. Otherwise nothing.
 */
#include <fcntl.h>
#include <inttypes.h>
#include <linux/userfaultfd.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#define PAGE 4096u
#define TRACKER 8
#ifndef USERFAULTFD_IOC_NEW
#define USERFAULTFD_IOC_NEW _IO(0xAA, 0)
#endif
#define FEATURE_WP_ASYNC (1u << 15)

static uint8_t *memory;

static struct {
    uint64_t first, count, step;
    atomic_bool end;
    pthread_t thread;
    bool runs;
} busy;

static void dirty(uint64_t first, uint64_t count, uint64_t step, uint64_t seed)
{
    for (uint64_t i = 0; i < count; i++) {
        uint64_t page = first + i * step;
        uint64_t *word = (uint64_t *)(memory + page * PAGE);
        for (unsigned w = 0; w < PAGE / 8; w++)
            word[w] = (page << 32) ^ (seed << 16) ^ w;
    }
}

static void touch(uint64_t first, uint64_t count)
{
    static volatile uint8_t sink;
    for (uint64_t i = 0; i < count; i++)
        sink = memory[(first + i) * PAGE];
    (void)sink;
}

static int dump(const char *path, uint64_t bytes)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    for (uint64_t at = 0; at < bytes;) {
        ssize_t n = write(fd, memory + at, bytes - at);
        if (n <= 0)
            return -1;
        at += (uint64_t)n;
    }
    return close(fd);
}

static void *write_pages(void *unused)
{
    /* At least one pass. */
    for (uint64_t pass = 1; pass == 1 || !atomic_load(&busy.end); pass++)
        for (uint64_t i = 0; i < busy.count; i++)
            *(volatile uint64_t *)(memory + (busy.first + i * busy.step) * PAGE) = pass;
    return unused;
}

static int calm(void)
{
    atomic_store(&busy.end, true);
    if (busy.runs)
        pthread_join(busy.thread, NULL);
    atomic_store(&busy.end, busy.runs = false);
    return 0;
}

static int begin(uint64_t first, uint64_t count, uint64_t step)
{
    calm();
    busy.first = first;
    busy.count = count;
    busy.step = step;
    return busy.runs = pthread_create(&busy.thread, NULL, write_pages, NULL) == 0, busy.runs ? 0 : -1;
}

static int userfaultfd(uint64_t features, bool api)
{
    struct uffdio_api request = {.api = UFFD_API, .features = features};
    int device = open("/dev/userfaultfd", O_RDWR | O_CLOEXEC);
    int fd = ioctl(device, USERFAULTFD_IOC_NEW, O_CLOEXEC | O_NONBLOCK | UFFD_USER_MODE_ONLY);
    if (device < 0 || fd < 0 || (api && ioctl(fd, UFFDIO_API, &request) < 0))
        exit(3);
    close(device);
    return fd;
}

/* One of a process that waits for our end. */
static int of_other(void)
{
    int ready[2], life[2];
    if (pipe(ready) < 0 || pipe(life) < 0)
        exit(3);
    pid_t child = fork();
    if (child == 0) {
        close(life[1]);
        int fd = userfaultfd(FEATURE_WP_ASYNC, true);
        if (write(ready[1], &fd, sizeof fd) != sizeof fd || read(life[0], &fd, 1) != 0)
            _exit(1);
        _exit(0);
    }
    int theirs, pidfd = (int)syscall(SYS_pidfd_open, child, 0);
    if (child < 0 || pidfd < 0 || read(ready[0], &theirs, sizeof theirs) != sizeof theirs)
        exit(3);
    return (int)syscall(SYS_pidfd_getfd, pidfd, theirs, 0);
}

static void track(const char *how)
{
    int fd, ends[2];
    if (strcmp(how, "yes") == 0)
        fd = userfaultfd(FEATURE_WP_ASYNC, true);
    else if (strcmp(how, "events") == 0)
        fd = userfaultfd(FEATURE_WP_ASYNC | UFFD_FEATURE_EVENT_UNMAP, true);
    else if (strcmp(how, "fresh") == 0)
        fd = userfaultfd(0, false);
    else if (strcmp(how, "other") == 0)
        fd = of_other();
    else if (strcmp(how, "pipe") == 0)
        fd = pipe(ends) == 0 ? ends[0] : -1;
    else
        return;
    if (dup3(fd, TRACKER, O_CLOEXEC) < 0)
        exit(3);
    close(fd);
}

/* A number splits the mapping into pieces by different protections. */
static void map(const char *path, uint64_t bytes, const char *how)
{
    bool shared = strcmp(how, "shared") == 0;
    int fd = open(path, shared ? O_RDWR : O_RDONLY);
    memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, shared ? MAP_SHARED : MAP_PRIVATE, fd, 0);
    if (fd < 0 || memory == MAP_FAILED)
        exit(2);
    uint64_t pieces = strtoull(how, NULL, 10), size = pieces > 0 ? bytes / pieces / PAGE * PAGE : 0;
    for (uint64_t i = 1; i < pieces; i += 2)
        mprotect(memory + size * i, size, PROT_READ | PROT_WRITE | PROT_EXEC);
}

int main(int argc, char **argv)
{
    char line[4200], path[4100];
    uint64_t a, b, c, d;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (argc < 3)
        return 2;
    uint64_t bytes = strtoull(argv[2], NULL, 10);
    map(argv[1], bytes, argc > 3 ? argv[3] : "");
    track(argc > 4 ? argv[4] : "");
    printf("ready\n");
    while (fflush(stdout) == 0 && fgets(line, sizeof line, stdin)) {
        int r = 0;
        if (sscanf(line, "dirty %" SCNu64 " %" SCNu64 " %" SCNu64 " %" SCNu64, &a, &b, &c, &d) == 4)
            dirty(a, b, c, d);
        else if (sscanf(line, "touch %" SCNu64 " %" SCNu64, &a, &b) == 2)
            touch(a, b);
        else if (sscanf(line, "discard %" SCNu64 " %" SCNu64, &a, &b) == 2)
            r = madvise(memory + a * PAGE, b * PAGE, MADV_DONTNEED);
        else if (sscanf(line, "dump %4099[^\n]", path) == 1)
            r = dump(path, bytes);
        else if (sscanf(line, "busy %" SCNu64 " %" SCNu64 " %" SCNu64, &a, &b, &c) == 3)
            r = begin(a, b, c);
        else if (strcmp(line, "calm\n") == 0)
            r = calm();
        else
            r = -1;
        printf(r == 0 ? "done\n" : "failed\n");
    }
    return 0;
}
