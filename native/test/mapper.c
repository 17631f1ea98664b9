/*
 * A process with guest memory for the tests: maps a file privately and changes it on command.
 *
 * test-mapper FILE BYTES [PIECES|shared]   prints `ready`; then one line for each command:
 *   dirty FIRST COUNT STEP SEED     writes every STEP-th page, COUNT of them, each with its own content
 *   touch FIRST COUNT               reads pages
 *   discard FIRST COUNT             drops changes: the pages are those of the file again
 *   dump PATH                       writes the whole memory as the process sees it
 */
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <unistd.h>

#define PAGE 4096u

static uint8_t *memory;

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
        else
            r = -1;
        printf(r == 0 ? "done\n" : "failed\n");
    }
    return 0;
}
