/* Process table and state changes. See proc.h. */
#include "process/proc.h"

#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "agent.h"
#include "boot/boot.h"

#define BUCKETS 1024 /* power of two */

static struct proc *by_id[BUCKETS], *by_pid[BUCKETS];
static struct proc *all;
static struct proc *fin_oldest, *fin_newest;
static uint32_t unfinished, finished;

struct proc *procs_first(void) { return all; }
uint32_t procs_unfinished(void) { return unfinished; }

struct proc *proc_find(uint32_t id)
{
    struct proc *p = by_id[id % BUCKETS];
    while (p && p->id != id)
        p = p->id_next;
    return p;
}

void proc_add(struct proc *p)
{
    p->id_next = by_id[p->id % BUCKETS];
    by_id[p->id % BUCKETS] = p;
    p->pid_next = by_pid[(uint32_t)p->pid % BUCKETS];
    by_pid[(uint32_t)p->pid % BUCKETS] = p;
    p->all_next = all;
    if (all)
        all->all_prev = p;
    all = p;
    unfinished++;
}

static void pid_remove(struct proc *p)
{
    for (struct proc **at = &by_pid[(uint32_t)p->pid % BUCKETS]; *at; at = &(*at)->pid_next)
        if (*at == p) {
            *at = p->pid_next;
            return;
        }
}

static void finished_remove(struct proc *p)
{
    *(p->fin_prev ? &p->fin_prev->fin_next : &fin_oldest) = p->fin_next;
    *(p->fin_next ? &p->fin_next->fin_prev : &fin_newest) = p->fin_prev;
    p->fin_prev = p->fin_next = NULL;
    finished--;
}

static void proc_free(struct proc *p)
{
    proc_unqueue(p);
    if (p->state == FINISHED)
        finished_remove(p);
    else
        unfinished--;
    for (struct proc **at = &by_id[p->id % BUCKETS]; *at; at = &(*at)->id_next)
        if (*at == p) {
            *at = p->id_next;
            break;
        }
    *(p->all_prev ? &p->all_prev->all_next : &all) = p->all_next;
    if (p->all_next)
        p->all_next->all_prev = p->all_prev;
    for (unsigned i = 0; i < 4; i++) {
        if ((i == 1 || i == 2) && !p->pty)
            chan_orphan(&p->chan[i]);
        else
            chan_close(&p->chan[i]);
        ring_free(&p->out[i].ring);
    }
    ring_free(&p->in0.ring);
    ring_free(&p->in3.ring);
    free(p->label);
    free(p->arg);
    free(p->args);
    loop_free_later(p);
}

/* The leader has exited and the host needs nothing more now. */
static void proc_finish(struct proc *p)
{
    p->state = FINISHED;
    p->attached = false;
    unfinished--;
    p->fin_prev = fin_newest;
    p->fin_next = NULL;
    *(fin_newest ? &fin_newest->fin_next : &fin_oldest) = p;
    fin_newest = p;
    finished++;
    if (p->forget)
        proc_free(p);
    else if (finished > FINISHED_MAX)
        proc_free(fin_oldest);
    else
        proc_dirty(p); /* keep reading pipes that other processes hold open */
}

void proc_exit_sent(struct proc *p) { proc_finish(p); }

void proc_forget(struct proc *p)
{
    p->forget = true;
    if (p->state == FINISHED)
        proc_free(p);
}

void proc_detach(struct proc *p)
{
    if (!p->attached)
        return;
    p->attached = false;
    for (unsigned i = 1; i <= 3; i++) {
        p->out[i].credit = 0;
        p->out[i].sent = p->out[i].total;
    }
    if (p->state == EXITED)
        proc_finish(p);
    else
        proc_dirty(p); /* a blocked process can continue */
}

void proc_attach(struct proc *p, const uint8_t *offsets)
{
    if (p->state == FINISHED) {
        finished_remove(p);
        unfinished++;
        p->state = EXITED;
    }
    p->attached = true;
    output_attach(p, offsets);
    proc_dirty(p);
}

void proc_signal(struct proc *p, int sig, bool leader_only)
{
    if (p->state == RUNNING)
        kill(leader_only ? p->pid : -p->pid, sig);
}

/* Only the host that started it has a use for it: a file that is not fully sent, a TCP stream, a watch. */
static bool needs_its_host(const struct proc *p)
{
    return p->kind == KIND_CONNECT || p->kind == KIND_WATCH || (p->kind == KIND_WRITE && p->in0.open && !p->in0.eof);
}

void procs_hello(void)
{
    for (struct proc *p = all, *next; p; p = next) {
        next = p->all_next;
        if (p->state == RUNNING && needs_its_host(p)) {
            proc_signal(p, SIGKILL, true); /* it has no children, and may not have its group yet */
            p->forget = true;
        }
        input_hello(p);
        proc_detach(p); /* may free p or next; their memory stays valid until the end of the batch */
    }
}

void procs_reseed(void)
{
    for (struct proc *p = all; p; p = p->all_next)
        if (p->kernel)
            proc_signal(p, RESEED_SIGNAL, true);
}

void procs_kill_all(void)
{
    for (struct proc *p = all; p; p = p->all_next)
        proc_signal(p, SIGKILL, false);
}

static uint64_t micros(struct timeval t) { return (uint64_t)t.tv_sec * 1000000 + (uint64_t)t.tv_usec; }

void procs_reap(void)
{
    struct rusage use;
    pid_t pid;
    int status;
    while ((pid = wait4(-1, &status, WNOHANG, &use)) > 0) {
        struct proc *p = by_pid[(uint32_t)pid % BUCKETS];
        while (p && p->pid != pid)
            p = p->pid_next;
        if (!p) {
            power_reaped(pid); /* otherwise an orphan, which needs no further work */
            continue;
        }
        pid_remove(p);
        p->status = status;
        p->user_us = micros(use.ru_utime);
        p->system_us = micros(use.ru_stime);
        p->rss_kib = (uint64_t)use.ru_maxrss;
        p->state = EXITED;
        p->in0.open = false;
        if (!p->pty)
            chan_close(&p->chan[0]);
        output_exited(p);
        if (p->attached)
            proc_dirty(p);
        else
            proc_finish(p);
    }
}
