/* forkd-pages: what the daemon needs of memory and files that Node cannot reach. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <unistd.h>

#include "pages.h"

/* It holds a copy of guest memory for a moment; when memory runs out it goes before the guest does. */
static void prefer_as_victim(void)
{
    int fd = open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC);
    if (fd < 0)
        return;
    ssize_t ignored = write(fd, "1000", 4);
    (void)ignored;
    close(fd);
}

/* The VM runs again: writing must not make its CPUs wait. */
void give_way(void) { setpriority(PRIO_PROCESS, 0, 10); }

int main(int argc, char **argv)
{
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    signal(SIGPIPE, SIG_IGN);
    if (sysconf(_SC_PAGESIZE) != PAGE)
        fail(ENOTSUP, "the pages of this host are not 4 KiB");
    const char *command = argc > 1 ? argv[1] : "";
    if (strcmp(command, "capture") == 0) {
        prefer_as_victim();
        return capture_command(argc - 1, argv + 1);
    }
    give_way();
    if (strcmp(command, "copy") == 0 && argc == 4)
        return copy_command(argv[2], argv[3]);
    if (strcmp(command, "ranges") == 0 && argc == 3)
        return ranges_command(argv[2]);
    fail(EINVAL, "usage: forkd-pages capture … | copy SRC DST | ranges FILE");
}
