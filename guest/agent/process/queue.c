/*
 * Queues of processes with work: those that can run now and those that wait for space on the link. Each runs
 * once per turn, so that a process with much output does not delay the others. Also the timeouts.
 */
#include <signal.h>
#include <stddef.h>

#include "process/proc.h"
#include "wire/link.h"

struct queue {
    struct proc *head, **tail;
};

static struct queue dirty = {NULL, &dirty.head}, blocked = {NULL, &blocked.head};
static struct queue turn = {NULL, &turn.head}; /* the dirty ones of the current turn */
static uint64_t next_deadline; /* at or before the first deadline; 0 = none */

static void push(struct queue *q, struct proc *p)
{
    p->queued = true;
    p->run_next = NULL;
    *q->tail = p;
    q->tail = &p->run_next;
}

static struct proc *pop(struct queue *q)
{
    struct proc *p = q->head;
    q->head = p->run_next;
    if (!q->head)
        q->tail = &q->head;
    p->queued = false;
    return p;
}

static bool drop(struct queue *q, struct proc *p)
{
    for (struct proc **at = &q->head; *at; at = &(*at)->run_next) {
        if (*at != p)
            continue;
        *at = p->run_next;
        if (!*at)
            q->tail = at;
        p->queued = false;
        return true;
    }
    return false;
}

void proc_dirty(struct proc *p)
{
    if (!p->queued)
        push(&dirty, p);
}

void proc_unqueue(struct proc *p)
{
    if (p->queued && !drop(&dirty, p) && !drop(&turn, p))
        drop(&blocked, p);
}

void procs_run(void)
{
    if (blocked.head && link_room()) {
        *dirty.tail = blocked.head;
        dirty.tail = blocked.tail;
        blocked.head = NULL;
        blocked.tail = &blocked.head;
    }
    if (!dirty.head)
        return;
    turn = dirty;
    dirty.head = NULL;
    dirty.tail = &dirty.head;
    while (turn.head) {
        struct proc *p = pop(&turn);
        enum pump_result r = output_pump(p);
        if (r == PUMP_AGAIN)
            proc_dirty(p);
        else if (r == PUMP_BLOCKED && !p->queued)
            push(&blocked, p);
    }
}

bool procs_pending(void) { return dirty.head || (blocked.head && link_room()); }

void procs_timer(uint64_t deadline)
{
    if (!next_deadline || deadline < next_deadline)
        next_deadline = deadline;
}

int procs_timeout(void)
{
    if (!next_deadline)
        return -1;
    uint64_t now = now_ms();
    uint64_t left = next_deadline > now ? next_deadline - now : 0;
    return left > 1000000 ? 1000000 : (int)left;
}

void procs_expire(void)
{
    if (!next_deadline)
        return;
    uint64_t now = now_ms();
    if (now < next_deadline)
        return;
    next_deadline = 0;
    for (struct proc *p = procs_first(); p; p = p->all_next) {
        if (!p->deadline || p->state != RUNNING)
            continue;
        if (p->deadline <= now) {
            p->deadline = 0;
            p->timed_out = true;
            proc_signal(p, SIGKILL, false);
        } else {
            procs_timer(p->deadline);
        }
    }
}
