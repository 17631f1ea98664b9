/* START: opens the pipes, terminal and socket of a new process, starts the child and adds it to the table. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "process/proc.h"
#include "wire/link.h"

struct streams {
    int child[4], ours[4];
};

static void close_all(int fd[4])
{
    for (int i = 0; i < 4; i++)
        if (fd[i] >= 0)
            close(fd[i]);
}

/* Opens the pipes, terminal and socket of a new process; -1 with errno and nothing left open. */
static int open_streams(struct start *s, struct streams *b)
{
    int pair[2];
    memset(b, 0xff, sizeof *b); /* all -1 */
    if (s->flags & START_PTY) {
        if (pty_open(&b->ours[1], &b->child[0], s->rows, s->cols) < 0)
            return -1;
        if (s->who.uid != geteuid())
            (void)!fchown(b->child[0], s->who.uid, s->who.gid);
    } else {
        if (s->flags & START_STDIN) {
            if (pipe2(pair, O_CLOEXEC) < 0)
                goto fail;
            b->child[0] = pair[0], b->ours[0] = pair[1];
        }
        for (int i = 1; i <= 2; i++) {
            if (pipe2(pair, O_CLOEXEC) < 0)
                goto fail;
            b->child[i] = pair[1], b->ours[i] = pair[0];
        }
    }
    if (s->flags & START_CONTROL) {
        if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) < 0)
            goto fail;
        b->child[3] = pair[0], b->ours[3] = pair[1];
    }
    return 0;
fail:
    close_all(b->child);
    close_all(b->ours);
    return -1;
}

static char *copy_text(const char *s, size_t max, uint16_t *len)
{
    *len = 0;
    if (!s || !*s)
        return NULL;
    size_t n = strnlen(s, max);
    char *copy = malloc(n);
    if (copy) {
        memcpy(copy, s, n);
        *len = (uint16_t)n;
    }
    return copy;
}

/* The arguments one after the other, as many bytes and arguments as a LISTING holds. */
static char *copy_args(char *const *argv, uint16_t *len)
{
    char *copy = malloc(ARGS_BYTES);
    size_t used = 0;
    for (unsigned i = 0; copy && argv[i] && i < ARGS_MAX && used < ARGS_BYTES; i++) {
        size_t n = strnlen(argv[i], ARGS_BYTES - used - 1);
        memcpy(copy + used, argv[i], n);
        copy[used + n] = 0;
        used += n + 1;
    }
    *len = (uint16_t)used;
    return copy;
}

static void add(struct proc *p, uint32_t id, pid_t pid, const struct start *s, const struct streams *b)
{
    p->id = id;
    p->pid = pid;
    p->kind = s->kind;
    p->flags = s->flags;
    p->keep = s->keep;
    p->pty = s->flags & START_PTY;
    p->kernel = start_is_kernel(s);
    p->attached = !(s->flags & START_DETACHED);
    p->label = copy_text(s->label, 64, &p->label_len);
    p->arg = copy_text(s->kind == KIND_COMMAND ? s->argv[0] : s->path, 256, &p->arg_len);
    if (s->kind == KIND_COMMAND)
        p->args = copy_args(s->argv, &p->args_len);
    p->started = now_ms();
    ring_init(&p->in0.ring, 4 * INPUT_WINDOW);
    ring_init(&p->in3.ring, 4 * INPUT_WINDOW);
    p->in0.open = b->ours[0] >= 0 || p->pty;
    p->in3.open = b->ours[3] >= 0;
    for (unsigned i = 0; i < 4; i++) {
        p->chan[i].fd = -1;
        if (i > 0) {
            ring_init(&p->out[i].ring, s->keep);
            p->out[i].used = b->ours[i] >= 0;
            p->out[i].credit = p->attached ? s->credit : 0;
        }
        if (b->ours[i] >= 0)
            chan_open(p, i, b->ours[i], i == 0 ? 0 : EPOLLIN);
    }
    proc_add(p);
    if (s->timeout) {
        p->deadline = now_ms() + s->timeout;
        procs_timer(p->deadline);
    }
}

static int launch(uint32_t id, struct start *s, const char **step, const char **subject)
{
    struct streams b;
    *step = "START";
    if (id == 0)
        return EINVAL;
    if (proc_find(id))
        return EEXIST;
    if (procs_unfinished() >= UNFINISHED_MAX)
        return EAGAIN;
    if (s->kind != KIND_COMMAND) {
        s->flags &= ~(uint32_t)(START_PTY | START_CONTROL | START_STDIN);
        if (s->kind == KIND_WRITE || s->kind == KIND_CONNECT || s->kind == KIND_WATCH)
            s->flags |= START_STDIN;
    }
    struct proc *p = calloc(1, sizeof *p);
    if (!p)
        return ENOMEM;
    *step = "stdio";
    if (open_streams(s, &b) < 0) {
        int err = errno;
        free(p);
        return err;
    }
    struct stdio io = {.pty = s->flags & START_PTY};
    memcpy(io.fd, b.child, sizeof io.fd);
    if (io.pty)
        io.fd[1] = io.fd[2] = io.fd[0];
    pid_t pid = s->kind == KIND_COMMAND ? spawn_command(s, &io, step, subject) : spawn_builtin(s, &io, step);
    int err = errno;
    close_all(b.child);
    if (pid < 0) {
        close_all(b.ours);
        free(p);
        return err;
    }
    add(p, id, pid, s, &b);
    return 0;
}

void proc_start(uint32_t id, struct start *s)
{
    const char *step = NULL, *subject = NULL;
    int err = launch(id, s, &step, &subject);
    if (err) {
        link_error(id, err, step, subject);
        return;
    }
    uint8_t *b = link_begin(9);
    field_put_u32(b, 1, (uint32_t)proc_find(id)->pid);
    link_end(FT_STARTED, id, 9);
}
