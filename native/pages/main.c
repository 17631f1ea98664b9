/* forkd-pages: operations on memory and files that the daemon needs and Node does not offer. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <unistd.h>

#include "pages.h"

/*
 * This process holds a copy of guest memory for a moment; the OOM killer should choose it before the guest.
 */
static void prefer_oom_kill(void)
{
    int fd = open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC);
    if (fd < 0)
        return;
    ssize_t ignored = write(fd, "1000", 4);
    (void)ignored;
    close(fd);
}

/* Of the calling thread. The VM runs: copying and writing must not slow down its CPUs. */
void lower_priority(void) { setpriority(PRIO_PROCESS, 0, 10); }

int main(int argc, char **argv)
{
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    signal(SIGPIPE, SIG_IGN);
    if (sysconf(_SC_PAGESIZE) != PAGE)
        fail(ENOTSUP, "the page size of this host is not 4 KiB");
    const char *command = argc > 1 ? argv[1] : "";
    if (strcmp(command, "capture") == 0) {
        prefer_oom_kill();
        return capture_command(argc - 1, argv + 1);
    }
    if (strcmp(command, "tracking") == 0 && argc == 2)
        return tracking_command();
    lower_priority();
    if (strcmp(command, "copy") == 0 && argc == 4)
        return copy_command(argv[2], argv[3]);
    if (strcmp(command, "ranges") == 0 && argc == 3)
        return ranges_command(argv[2]);
    fail(EINVAL, "usage: forkd-pages capture … | copy SRC DST | ranges FILE | tracking");
}
