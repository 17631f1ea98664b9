/*
 * Processes: everything the host started (commands, file operations, TCP streams).
 *
 * States: RUNNING (leader alive) -> EXITED (leader reaped, output and EXIT not yet sent to the attached host)
 * -> FINISHED (all sent, or detached; kept for ATTACH, at most FINISHED_MAX). A process with work to do is in
 * the dirty queue; one that waits for space on the link is in the blocked queue.
 */
#ifndef FORKD_PROC_H
#define FORKD_PROC_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "wire/loop.h"
#include "process/ring.h"
#include "process/start.h"

#define UNFINISHED_MAX 1024
#define FINISHED_MAX 256
#define KEEP_DEFAULT 65536u
#define KEEP_MAX 1048576u
#define INPUT_WINDOW 65536u

enum proc_state { RUNNING, EXITED, FINISHED };

/* The agent's end of a stream. Index = stream number; with a PTY, channel 1 carries streams 0 and 1. */
struct chan {
    struct watch w;
    struct proc *proc;
    int fd; /* -1 when closed or never opened */
    uint8_t index;
    bool readable, hup; /* edge-triggered events that are not handled yet */
    bool want_out;      /* EPOLLOUT is armed because input waits */
};

/* An output stream (1, 2, 3). The ring holds the last bytes of `total`; [sent, total) is not sent yet. */
struct outs {
    struct ring ring;
    uint64_t total, sent, credit;
    uint64_t barrier;   /* of streams 1 and 2: stream 3 waits until `sent` reaches this */
    uint64_t mark;      /* once drained: EXIT waits until `sent` reaches this */
    int64_t drain_left; /* after the exit: bytes that the leader may have left in the pipe, plus one */
    bool used, eof, eof_sent, drained;
};

/* An input stream (0, 3): bytes that the process has not read yet. */
struct ins {
    struct ring ring;
    uint32_t stale;  /* bytes from before the last HELLO: they return no credit */
    uint32_t credit; /* consumed and not yet reported */
    bool open, eof;  /* eof: close when the ring is empty */
};

/* How much of a command a LISTING reports. */
#define ARGS_MAX 32
#define ARGS_BYTES 512

struct proc {
    uint32_t id;
    pid_t pid;
    enum proc_state state;
    uint8_t kind;
    uint32_t flags, keep;
    bool attached, forget, timed_out, pty;
    bool kernel; /* a language kernel, which receives RESEED_SIGNAL */
    uint64_t deadline; /* ms on the monotonic clock, 0 = none */

    int status; /* of wait4 */
    uint64_t user_us, system_us, rss_kib;

    struct chan chan[4];
    struct outs out[4]; /* 0 is unused */
    struct ins in0, in3;
    char *label, *arg;
    char *args; /* the whole command, each argument with its NUL; cut at ARGS_BYTES */
    uint16_t label_len, arg_len, args_len;
    uint64_t started; /* ms on the monotonic clock */

    struct proc *id_next, *pid_next;       /* hash chains */
    struct proc *all_prev, *all_next;      /* every process */
    struct proc *fin_prev, *fin_next;      /* finished, oldest first */
    struct proc *run_next;                 /* dirty or blocked queue */
    bool queued;
};

/* proc.c: the table of processes and their states. */
struct proc *proc_find(uint32_t id);
struct proc *procs_first(void);
uint32_t procs_unfinished(void);
void proc_add(struct proc *p);
void proc_exit_sent(struct proc *p);
void proc_forget(struct proc *p);
void proc_detach(struct proc *p);
void proc_attach(struct proc *p, const uint8_t *offsets);
void proc_signal(struct proc *p, int sig, bool leader_only);
void procs_hello(void);
void procs_reseed(void);
void procs_reap(void);
void procs_kill_all(void);

/* launch.c: replies with STARTED or ERROR. */
void proc_start(uint32_t id, struct start *s);

/* queue.c: which processes have work, and timeouts. */
void proc_dirty(struct proc *p);
void proc_unqueue(struct proc *p);
void procs_run(void);
bool procs_pending(void);
void procs_timer(uint64_t deadline);
int procs_timeout(void);
void procs_expire(void);

/* output.c: streams 1, 2, 3. output_pump returns when to call it again. */
enum pump_result { PUMP_IDLE, PUMP_AGAIN, PUMP_BLOCKED };
enum pump_result output_pump(struct proc *p);
void output_exited(struct proc *p);
void output_attach(struct proc *p, const uint8_t *offsets);

/* input.c: streams 0 and 3. */
void input_write(struct proc *p, uint8_t stream, const uint8_t *data, uint32_t n);
void input_eof(struct proc *p, uint8_t stream);
void input_attach(struct proc *p);
void input_ready(struct proc *p, struct chan *c);
void input_report(struct proc *p);
void input_hello(struct proc *p);

/* chan.c: descriptors. */
int chan_open(struct proc *p, unsigned index, int fd, uint32_t events);
void chan_close(struct chan *c);
void chan_orphan(struct chan *c);

/* pty.c */
int pty_open(int *master, int *slave, uint16_t rows, uint16_t cols);
void pty_resize(struct proc *p, uint16_t rows, uint16_t cols);
void pty_type_eof(int master);

/* list.c */
void procs_list(uint32_t request);

#endif
