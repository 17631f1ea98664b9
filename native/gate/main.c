/* forkd-gate: serves requests for sockets until the channel to Node closes. */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "gate.h"

/* Nothing in a child waits, except for a connection. */
#define WORK_MS 5000

struct job {
    pid_t child; /* 0: free */
    int from;
    enum kind kind;
    size_t expected; /* sockets that have not arrived yet */
    bool answered;   /* with an error */
    int64_t deadline;
    char id[ID_MAX + 1];
};

static struct job jobs[REQUESTS_MAX];

static int64_t now_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

static void start(struct job *job, const struct request *request)
{
    int pair[2];
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0) {
        channel_error(request->id, errno, "cannot make a socket pair");
        return;
    }
    pid_t child = fork();
    if (child == 0)
        serve(request, pair[1]);
    close(pair[1]);
    if (child < 0) {
        channel_error(request->id, errno, "cannot start a process");
        close(pair[0]);
        return;
    }
    *job = (struct job){.child = child,
                        .from = pair[0],
                        .kind = request->kind,
                        .expected = request->port_count,
                        .deadline = now_ms() + request->timeout_ms + WORK_MS};
    strcpy(job->id, request->id);
}

static void handle(char *text)
{
    struct request request;
    const char *why;
    if (!request_read(text, &request, &why)) {
        channel_error(request.id, EINVAL, why);
        return;
    }
    for (size_t i = 0; i < REQUESTS_MAX && channel_waiting() < REQUESTS_MAX; i++)
        if (jobs[i].child == 0) {
            start(&jobs[i], &request);
            return;
        }
    channel_error(request.id, EAGAIN, "too many requests are in progress");
}

static void finish(struct job *job, int err, const char *why)
{
    if (job->expected > 0 && !job->answered)
        channel_error(job->id, err, why);
    /* Not reaped before, so the pid is still this child's. */
    kill(job->child, SIGKILL);
    while (waitpid(job->child, NULL, 0) < 0 && errno == EINTR)
        continue;
    close(job->from);
    job->child = 0;
}

static void receive(struct job *job)
{
    struct result result;
    int fd;
    ssize_t n = receive_with(job->from, &result, sizeof result, &fd);
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (n != sizeof result) {
        finish(job, EIO, "the process that serves the request has exited");
        return;
    }
    if (result.err) {
        result.text[sizeof result.text - 1] = 0;
        channel_error(job->id, result.err, result.text);
        job->answered = true;
    } else if (fd >= 0 && job->expected > 0) {
        channel_socket(job->id, job->kind, result.port, fd);
        job->expected--;
        fd = -1;
    }
    if (fd >= 0)
        close(fd);
}

int main(void)
{
    const char *number = getenv("NODE_CHANNEL_FD");
    if (!number || atoi(number) <= 2) {
        fprintf(stderr, "forkd-gate: start it from Node with an \"ipc\" channel\n");
        return 1;
    }
    signal(SIGPIPE, SIG_IGN);
    channel_open(atoi(number));
    for (;;) {
        struct pollfd all[REQUESTS_MAX + 1];
        size_t index[REQUESTS_MAX + 1], count = 1;
        int64_t now = now_ms();
        int wait = -1;
        all[0] = (struct pollfd){.fd = atoi(number), .events = channel_events()};
        for (size_t i = 0; i < REQUESTS_MAX; i++) {
            if (jobs[i].child == 0)
                continue;
            int64_t left = jobs[i].deadline - now;
            if (left <= 0) {
                finish(&jobs[i], ETIMEDOUT, "the request took too long");
                continue;
            }
            if (wait < 0 || left < wait)
                wait = (int)left;
            index[count] = i;
            all[count++] = (struct pollfd){.fd = jobs[i].from, .events = POLLIN};
        }
        if (poll(all, count, wait) < 0 && errno != EINTR)
            return 1;
        for (size_t i = 1; i < count; i++)
            if (all[i].revents)
                receive(&jobs[index[i]]);
        if (all[0].revents & (POLLIN | POLLHUP | POLLERR) && !channel_read(handle))
            return 0;
        channel_write();
    }
}
