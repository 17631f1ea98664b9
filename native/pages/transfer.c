/*
 * Copies pages from the process with as few system calls as possible. Two threads copy large amounts; each
 * takes the next part when it has finished one.
 */
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>

#include "pages.h"

#define PART 2048u         /* pages */
#define THREADS_FROM 4096u /* pages: 16 MiB */
#define PARTS_MAX 1024u    /* limit of one call */

struct job {
    const struct target *target;
    const struct runs *runs;
    const struct buffer *buffer;
    atomic_uint_least64_t next;
};

/* Both lists have the same sizes. */
static void read_parts(const struct target *target, struct iovec *local, struct iovec *remote, size_t count)
{
    while (count > 0) {
        ssize_t n = process_vm_readv(target->pid, local, count, remote, count, 0);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            target_unreadable(target, n < 0 ? errno : EIO);
        size_t gone = skip_bytes(local, count, (size_t)n);
        skip_bytes(remote, count, (size_t)n);
        local += gone;
        remote += gone;
        count -= gone;
    }
}

/* Copies the pages with index `from` to `to` of the runs. */
static void copy_part(const struct job *job, uint64_t from, uint64_t to)
{
    struct iovec local[PARTS_MAX], remote[PARTS_MAX];
    size_t count = 0;
    const struct run *run = &job->runs->all[runs_find(job->runs, from)];
    while (from < to) {
        uint64_t left, skip = from - run->at;
        uint64_t want = (run->count - skip < to - from ? run->count - skip : to - from) * PAGE;
        uint64_t address = pieces_address(&job->target->pieces, (run->first + skip) * PAGE, &left);
        if (want > left)
            want = left;
        local[count] = (struct iovec){buffer_at(job->buffer, run, skip), want};
        remote[count++] = (struct iovec){(void *)address, want};
        from += want / PAGE;
        if (from == run->at + run->count)
            run++;
        if (count == PARTS_MAX || from == to) {
            read_parts(job->target, local, remote, count);
            count = 0;
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

void transfer(const struct target *target, const struct runs *runs, const struct buffer *buffer, bool two)
{
    struct job job = {.target = target, .runs = runs, .buffer = buffer};
    pthread_t other;
    two = two && runs->pages > THREADS_FROM && pthread_create(&other, NULL, work, &job) == 0;
    work(&job);
    if (two)
        pthread_join(other, NULL);
}
