/*
 * forkd-agent: /init of a guest (PID 1), or a server on a host socket for tests.
 *
 *   forkd-agent --serve PATH   connect to a UNIX socket and serve the protocol on it
 *   forkd-agent --tsc-khz      print the frequency of the TSC
 *   forkd-agent --version
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#include "agent.h"
#include "boot/boot.h"
#include "fork/fork.h"
#include "process/proc.h"
#include "wire/link.h"
#include "wire/loop.h"

#define FILES_AGENT 65536
#define FILES_SOFT 1024
#define FILES_HARD 524288

struct agent agent;

static int signal_fd;
static struct watch signal_watch;

static void on_signal(struct watch *w, uint32_t events)
{
    struct signalfd_siginfo info;
    (void)w, (void)events;
    /* Several exits can share one SIGCHLD; procs_reap waits for all of them. */
    (void)!read(signal_fd, &info, sizeof info);
    procs_reap();
}

static void watch_children(void)
{
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGCHLD);
    sigprocmask(SIG_BLOCK, &set, NULL);
    signal(SIGPIPE, SIG_IGN);
    signal_fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    signal_watch.fn = on_signal;
    loop_add(signal_fd, EPOLLIN, &signal_watch);
}

/* The agent holds four descriptors for each of 1,024 processes; commands get the usual limits. */
static void raise_limits(void)
{
    struct rlimit own;
    getrlimit(RLIMIT_NOFILE, &agent.child_files);
    own = agent.child_files;
    if (agent.machine) {
        own = (struct rlimit){FILES_AGENT, FILES_HARD};
        agent.child_files = (struct rlimit){FILES_SOFT, FILES_HARD};
    } else if (own.rlim_max > FILES_AGENT) {
        own.rlim_cur = FILES_AGENT;
    } else {
        own.rlim_cur = own.rlim_max;
    }
    setrlimit(RLIMIT_NOFILE, &own);
}

static _Noreturn void serve(int fd, bool end_exits)
{
    raise_limits();
    loop_init();
    watch_children();
    link_open(fd, end_exits);
    if (agent.machine)
        boost_start(fd);
    loop_run();
}

/* Commands would inherit signals that our parent ignores. A raw syscall, because libc hides two signals. */
static void default_signals(void)
{
    static const unsigned long nothing[4]; /* the kernel's sigaction: SIG_DFL, no flags, no mask */
    for (int s = 1; s <= 64; s++)
        syscall(SYS_rt_sigaction, s, nothing, NULL, 8);
}

static int connect_socket(const char *path)
{
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    if (strlen(path) >= sizeof a.sun_path) {
        errno = ENAMETOOLONG;
        return -1;
    }
    strcpy(a.sun_path, path);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0 || connect(fd, (struct sockaddr *)&a, sizeof a) < 0)
        return -1;
    fcntl(fd, F_SETFL, O_NONBLOCK);
    return fd;
}

static int serve_socket(const char *path)
{
    int fd;
    default_signals();
    /* Children need the descriptors 0-3. */
    while ((fd = open("/dev/null", O_RDWR | O_CLOEXEC)) >= 0 && fd < 3)
        ;
    close(fd);
    close_range(3, ~0u, 0);
    fd = connect_socket(path);
    if (fd < 0) {
        fprintf(stderr, "forkd-agent: cannot connect to '%s': %s\n", path, strerror(errno));
        return 1;
    }
    serve(fd, true);
}

int main(int argc, char **argv)
{
    if (argc == 2 && strcmp(argv[1], "--version") == 0)
        return puts("forkd-agent " AGENT_VERSION) < 0;
    if (argc == 2 && strcmp(argv[1], "--tsc-khz") == 0)
        return tsc_print();
    if (argc == 3 && strcmp(argv[1], "--serve") == 0)
        return serve_socket(argv[2]);
    if (getpid() != 1) {
        fputs("usage: forkd-agent --serve PATH | --tsc-khz | --version\n", stderr);
        return 2;
    }
    agent.machine = true;
    init_boot();
    serve(port_open(), false);
}
