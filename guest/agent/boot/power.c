/* SYNC, POWEROFF and reset. */
#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/reboot.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "agent.h"
#include "boot/boot.h"
#include "fork/fork.h"
#include "process/proc.h"
#include "wire/link.h"
#include "wire/loop.h"

#define SYNCS 16
#define TERM_MS 2000
#define KILL_MS 500

static struct {
    pid_t pid;
    uint32_t id;
    bool wanted; /* false when the host that requested it has disconnected */
} syncs[SYNCS];

/* sync(2) can be slow, so a child process runs it. */
void power_sync(uint32_t id)
{
    for (int i = 0; i < SYNCS; i++) {
        if (syncs[i].pid)
            continue;
        pid_t pid = fork();
        if (pid == 0) {
            close_range(3, ~0u, 0);
            sync();
            _exit(0);
        }
        if (pid < 0)
            break;
        syncs[i].pid = pid;
        syncs[i].id = id;
        syncs[i].wanted = true;
        return;
    }
    sync();
    link_ok(id);
}

/* A new host does not expect replies to requests of an earlier one. */
void power_hello(void)
{
    for (int i = 0; i < SYNCS; i++)
        syncs[i].wanted = false;
}

void power_reaped(pid_t pid)
{
    for (int i = 0; i < SYNCS; i++)
        if (syncs[i].pid == pid) {
            syncs[i].pid = 0;
            pages_own();
            if (syncs[i].wanted)
                link_ok(syncs[i].id);
            return;
        }
}

_Noreturn void machine_reset(void)
{
    reboot(RB_AUTOBOOT);
    for (;;)
        pause();
}

/* Reaps until no child is left or the time is over. PID 1 becomes the parent of every orphaned process. */
static void wait_children(int ms)
{
    uint64_t end = now_ms() + (uint64_t)ms;
    sigset_t child;
    sigemptyset(&child);
    sigaddset(&child, SIGCHLD);
    for (;;) {
        pid_t pid;
        while ((pid = waitpid(-1, NULL, WNOHANG)) > 0)
            ;
        uint64_t now = now_ms();
        if (pid < 0 || now >= end)
            return;
        struct timespec left = {.tv_sec = (time_t)((end - now) / 1000), .tv_nsec = (long)((end - now) % 1000) * 1000000};
        sigtimedwait(&child, NULL, &left);
    }
}

_Noreturn void power_off(void)
{
    link_flush();
    if (!agent.machine) {
        procs_kill_all();
        _exit(0);
    }
    kill(-1, SIGTERM);
    kill(-1, SIGCONT); /* a stopped process does not handle SIGTERM */
    wait_children(TERM_MS);
    kill(-1, SIGKILL);
    wait_children(KILL_MS);
    sync();
    mount(NULL, "/", NULL, MS_REMOUNT | MS_RDONLY, NULL);
    sync();
    machine_reset();
}
