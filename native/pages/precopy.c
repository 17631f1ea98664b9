/*
 * Copies pages while the process runs, so that few are left to copy while it is stopped.
 *
 * A round goes through memory in chunks. It protects the pages of a chunk that were written, and then copies them.
 * So a page that is still protected later is in the buffer as it is now. Only private pages are protected: the
 * pages of the file and those without content have no entry to store it in, and when they become private, they
 * count as written.
 *
 * A process may discard a page, which is then the file's again. The kernel keeps that the page was protected, in an
 * entry that looks like a page in swap. So protected pages that are not in memory are read again while the
 * process is stopped. If it was read after it was discarded, it looks like all protected pages. That is found
 * when the process runs again, and the capture fails. QEMU discards memory only for devices that our machines do
 * not have.
 *
 * The first round copies every page, protected or not: protection may be left from a capture that was killed.
 */
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>

#include "pages.h"

#define CHUNK 16384u        /* pages: 64 MiB */
#define ROUNDS 8u
#define FEW 512u            /* pages: 2 MiB, which are copied within a millisecond */
#define LONG_RUN 64u        /* pages */
#define LONGEST 30000000ull /* microseconds */
#define BRIEF 200000u     /* us */

struct job {
    struct precopy *precopy;
    struct buffer *buffer;
    bool brief; /* input of the guest waits for it */
    uint64_t copied;
};

static uint64_t not_copied(const struct precopy *precopy, const struct runs *runs)
{
    uint64_t count = 0;
    for (size_t i = 0; i < runs->count; i++) {
        uint64_t at = runs->all[i].first, end = at + runs->all[i].count;
        while ((at = bits_find(precopy->copied, at, end, false)) < end) {
            uint64_t next = bits_find(precopy->copied, at, end, true);
            count += next - at;
            at = next;
        }
    }
    return count;
}

static void copy(struct precopy *precopy, const struct buffer *buffer, const struct runs *runs, bool two)
{
    buffer_expect(not_copied(precopy, runs));
    transfer(precopy->tracker.target, runs, buffer, two);
    for (size_t i = 0; i < runs->count; i++)
        bits_set(precopy->copied, runs->all[i].first, runs->all[i].count);
}

/* False when the time is over; the chunks that were not reached are not protected. */
static bool round_of(struct precopy *precopy, struct buffer *buffer, uint64_t until, uint64_t *copied)
{
    uint64_t all = buffer->pages;
    for (uint64_t at = 0; at < all; at += CHUNK) {
        uint64_t count = all - at < CHUNK ? all - at : CHUNK;
        struct question question = {.none_of = PAGE_FILE, .protect = true};
        if (micros() > until)
            return false;
        if (precopy->rounds > 0)
            question.all_of = PAGE_WRITTEN;
        runs_clear(&precopy->runs);
        scan_pages(precopy->tracker.target, at, count, &question, &precopy->runs, NULL);
        copy(precopy, buffer, &precopy->runs, false);
        *copied += precopy->runs.pages;
    }
    precopy->rounds++;
    return true;
}

static void *work(void *argument)
{
    struct job *job = argument;
    struct precopy *precopy = job->precopy;
    uint64_t until = micros() + (job->brief ? BRIEF : LONGEST), before = UINT64_MAX;
    /* Of this thread alone: only root could raise the priority of the process again. */
    lower_priority();
    for (unsigned i = 0; i < (job->brief ? 1 : ROUNDS) && !precopy->late; i++) {
        uint64_t copied = 0;
        precopy->late = !round_of(precopy, job->buffer, until, &copied);
        job->copied += copied;
        /* A process that writes as fast as we copy does not get nearer to its end by more rounds. */
        if (copied <= FEW || copied > before - before / 4)
            break;
        before = copied;
    }
    return NULL;
}

bool precopy_open(struct precopy *precopy, const struct target *target, int number, struct buffer *buffer)
{
    uint64_t pages = target->bytes / PAGE;
    /* First what can fail: a failure must not leave the process registered. */
    precopy->copied = bits_new(pages);
    if (!tracker_open(&precopy->tracker, target, number))
        return false;
    if (buffer_place(buffer, pages))
        return true;
    tracker_close(&precopy->tracker);
    return false;
}

uint64_t precopy_run(struct precopy *precopy, struct buffer *buffer, bool brief)
{
    struct job job = {.precopy = precopy, .buffer = buffer, .brief = brief};
    pthread_t thread;
    int err = pthread_create(&thread, NULL, work, &job);
    if (err)
        fail(err, "cannot start a thread");
    pthread_join(thread, NULL);
    return job.copied;
}

/*
 * Finds private pages that are not protected. To know whether a page is the file's costs the kernel a look at the
 * page itself, far more than a look at its entry. So the scan leaves out long runs of protected pages.
 */
static void find_written(const struct precopy *precopy, const struct runs *protected, uint64_t pages,
                         struct runs *written)
{
    static const struct question question = {.all_of = PAGE_WRITTEN, .none_of = PAGE_FILE};
    uint64_t at = 0;
    for (size_t i = 0; i <= protected->count; i++) {
        const struct run *run = i < protected->count ? &protected->all[i] : NULL;
        if (run && run->count < LONG_RUN)
            continue;
        uint64_t end = run ? run->first : pages;
        if (at < end)
            scan_pages(precopy->tracker.target, at, end - at, &question, written, NULL);
        at = run ? run->first + run->count : pages;
    }
}

/* Reading a page makes the kernel decide what it is. Returns those that are private. */
static struct runs read_absent(struct precopy *precopy, struct buffer *buffer, const struct runs *absent)
{
    static const struct question question = {.none_of = PAGE_FILE};
    struct runs private = {0};
    copy(precopy, buffer, absent, true);
    for (size_t i = 0; i < absent->count; i++)
        scan_pages(precopy->tracker.target, absent->all[i].first, absent->all[i].count, &question, &private, NULL);
    return private;
}

#ifdef FORGET_WRITES
/* For the tests, which must find this: the pages of one run stay as they were copied before. */
static void forget_longest(struct runs *runs)
{
    struct runs rest = {0};
    size_t longest = 0;
    for (size_t i = 1; i < runs->count; i++)
        if (runs->all[i].count > runs->all[longest].count)
            longest = i;
    for (size_t i = 0; i < runs->count; i++)
        if (i != longest)
            runs_add(&rest, runs->all[i].first, runs->all[i].count);
    free(runs->all);
    *runs = rest;
}
#endif

uint64_t precopy_take(struct precopy *precopy, struct buffer *buffer, struct runs *all, uint64_t *scanned)
{
    static const struct question clean = {.none_of = PAGE_WRITTEN};
    struct runs protected = {0}, absent = {0}, written = {0}, known = {0}, *needed = &precopy->runs;
    scan_pages(precopy->tracker.target, 0, buffer->pages, &clean, &protected, &absent);
    find_written(precopy, &protected, buffer->pages, &written);
    struct runs again = read_absent(precopy, buffer, &absent);
    runs_merge(&known, &protected, &again);
    runs_clear(all);
    runs_merge(all, &known, &written);
#ifdef FORGET_WRITES
    forget_longest(&written);
#endif
    runs_clear(needed);
    runs_missing(needed, all, &written, precopy->copied);
    *scanned = micros();
    copy(precopy, buffer, needed, true);
    free(protected.all);
    free(absent.all);
    free(written.all);
    free(again.all);
    free(known.all);
    return needed->pages;
}

void precopy_close(struct precopy *precopy, const struct runs *taken)
{
    static const struct question question = {.all_of = PAGE_FILE, .none_of = PAGE_WRITTEN};
    struct runs discarded = {0};
    if (precopy->tracker.fd < 0)
        return;
    for (size_t i = 0; i < taken->count; i++)
        scan_pages(precopy->tracker.target, taken->all[i].first, taken->all[i].count, &question, &discarded, NULL);
    tracker_close(&precopy->tracker);
    if (discarded.pages > 0)
        fail(EIO, "process %d discarded memory that was being captured", precopy->tracker.target->pid);
    free(discarded.all);
}
