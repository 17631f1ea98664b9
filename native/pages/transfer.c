/*
 * Copies pages from the process with as few system calls as possible. Two threads copy large amounts; each
 * takes the next part when it has finished one.
 */
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/uio.h>

#include "pages.h"

#define PART 2048u         /* pages */
#define THREADS_FROM 4096u /* pages: 16 MiB */
#define REMOTE_MAX 1024u   /* limit of one call */

struct job {
    const struct target *target;
    const struct runs *runs;
    uint8_t *base;
    atomic_uint_least64_t next;
};

static void read_part(const struct target *target, uint8_t *to, struct iovec *remote, size_t count, size_t bytes)
{
    while (bytes > 0) {
        struct iovec local = {to, bytes};
        ssize_t n = process_vm_readv(target->pid, &local, 1, remote, count, 0);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            target_unreadable(target, n < 0 ? errno : EIO);
        to += n;
        bytes -= (size_t)n;
        while (count > 0 && (size_t)n >= remote->iov_len) {
            n -= (ssize_t)remote->iov_len;
            remote++;
            count--;
        }
        if (n > 0) {
            remote->iov_base = (uint8_t *)remote->iov_base + n;
            remote->iov_len -= (size_t)n;
        }
    }
}

/* Copies the pages with index `from` to `to` of the runs. */
static void copy_part(const struct job *job, uint64_t from, uint64_t to)
{
    struct iovec remote[REMOTE_MAX];
    size_t count = 0, bytes = 0;
    uint8_t *at = job->base + from * PAGE;
    const struct run *run = &job->runs->all[runs_find(job->runs, from)];
    while (from < to) {
        uint64_t left, skip = from - run->at;
        uint64_t want = (run->count - skip < to - from ? run->count - skip : to - from) * PAGE;
        uint64_t address = pieces_address(&job->target->pieces, (run->first + skip) * PAGE, &left);
        if (want > left)
            want = left;
        remote[count++] = (struct iovec){(void *)address, want};
        bytes += want;
        from += want / PAGE;
        if (from == run->at + run->count)
            run++;
        if (count == REMOTE_MAX || from == to) {
            read_part(job->target, at, remote, count, bytes);
            at += bytes;
            count = bytes = 0;
        }
    }
}

static void *work(void *argument)
{
    struct job *job = argument;
    uint64_t pages = job->runs->pages;
    for (;;) {
        uint64_t from = atomic_fetch_add(&job->next, PART);
        if (from >= pages)
            return NULL;
        copy_part(job, from, pages - from < PART ? pages : from + PART);
    }
}

void transfer(const struct target *target, const struct runs *runs, uint8_t *base)
{
    struct job job = {.target = target, .runs = runs, .base = base};
    pthread_t other;
    bool two = runs->pages > THREADS_FROM && pthread_create(&other, NULL, work, &job) == 0;
    work(&job);
    if (two)
        pthread_join(other, NULL);
}
