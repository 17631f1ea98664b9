/*
 * Starts child processes. A command uses vfork: the child shares the agent's memory until exec, so nothing is
 * copied, and it reports a failed step by writing to a variable of the parent. It therefore makes only system
 * calls and changes nothing else in memory. File operations run code of the agent and use fork.
 */

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "agent.h"
#include "process/start.h"

static struct {
    const char *step;
    const char *subject;
    int err;
} volatile failed;

static int fail(const char *step, const char *subject)
{
    failed.err = errno;
    failed.step = step;
    failed.subject = subject;
    return -1;
}

/* Moves the descriptors to 0..3 and closes all others. */
static int place_descriptors(const struct stdio *io)
{
    for (int i = 0; i < 4; i++) {
        int fd = io->fd[i];
        if (i == 3 && fd < 0)
            break;
        if (fd < 0)
            fd = open("/dev/null", i == 0 ? O_RDONLY : O_WRONLY);
        if (fd < 0 || (fd != i && dup2(fd, i) < 0))
            return fail("stdio", NULL);
    }
    /* CLOEXEC alone is not enough: file operations never call exec. */
    close_range(io->fd[3] < 0 ? 3 : 4, ~0u, 0);
    return 0;
}

/* The first steps of every child: its own session and group, default signals, the limits of commands. */
static int become_leader(const struct stdio *io)
{
    sigset_t none;
    setsid();
    if (place_descriptors(io) < 0)
        return -1;
    if (io->pty && ioctl(0, TIOCSCTTY, 0) < 0)
        return fail("terminal", NULL);
    if (agent.machine) {
        int fd = open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC);
        if (fd >= 0) {
            (void)!write(fd, "0", 1);
            close(fd);
        }
    }
    setrlimit(RLIMIT_NOFILE, &agent.child_files);
    umask(022);
    signal(SIGPIPE, SIG_DFL);
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    return 0;
}

static const char *path_of(char *const env[])
{
    for (; *env; env++)
        if (strncmp(*env, "PATH=", 5) == 0)
            return *env + 5;
    return "";
}

/* Searches PATH. Like a shell, it continues after "not found" and remembers "not permitted". */
static void execute(char *const argv[], char *const env[])
{
    char file[PATH_MAX];
    size_t name = strlen(argv[0]);
    if (strchr(argv[0], '/')) {
        execve(argv[0], argv, env);
        return;
    }
    int err = ENOENT;
    for (const char *dir = path_of(env); dir; dir = strchr(dir, ':') ? strchr(dir, ':') + 1 : NULL) {
        size_t len = strcspn(dir, ":");
        if (len + name + 2 > sizeof file)
            continue;
        memcpy(file, dir, len);
        if (len)
            file[len++] = '/';
        memcpy(file + len, argv[0], name + 1);
        execve(file, argv, env);
        if (errno == EACCES)
            err = EACCES;
        else if (errno != ENOENT && errno != ENOTDIR)
            return;
    }
    errno = err;
}

static void command_child(struct start *s, const struct stdio *io)
{
    if (become_leader(io) < 0)
        return;
    if (user_become(&s->who) < 0) {
        fail("user", s->user);
        return;
    }
    if (s->cwd && *s->cwd) {
        if (chdir(s->cwd) < 0) {
            fail("cwd", s->cwd);
            return;
        }
    } else if (chdir(s->who.home) < 0 && chdir("/") < 0) {
        fail("cwd", "/");
        return;
    }
    if (start_is_kernel(s))
        signal(RESEED_SIGNAL, SIG_IGN); /* it must not kill the kernel before the handler is installed */
    execute(s->argv, s->env);
    fail("exec", s->argv[0]);
}

pid_t spawn_command(struct start *s, const struct stdio *io, const char **step, const char **subject)
{
    start_environment(s);
    failed.step = NULL;
    pid_t pid = vfork();
    if (pid == 0) {
        command_child(s, io);
        _exit(127);
    }
    if (pid < 0) {
        *step = "fork";
        return -1;
    }
    if (failed.step) {
        waitpid(pid, NULL, 0);
        *step = failed.step;
        *subject = failed.subject;
        errno = failed.err;
        return -1;
    }
    return pid;
}

pid_t spawn_builtin(struct start *s, const struct stdio *io, const char **step)
{
    pid_t pid = fork();
    if (pid == 0) {
        if (become_leader(io) < 0)
            _exit(EIO);
        signal(SIGPIPE, SIG_IGN); /* a write to a closed stream fails with EPIPE instead */
        if (s->kind != KIND_CONNECT && user_become(&s->who) < 0)
            _exit(errno);
        if (chdir(s->who.home) < 0)
            (void)!chdir("/");
        _exit(builtin_run(s));
    }
    if (pid < 0)
        *step = "fork";
    return pid;
}
