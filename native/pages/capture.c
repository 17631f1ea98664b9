/*
 * capture: copies the pages of a VMM in which its private mapping of a file differs from the file.
 *
 * Everything slow happens while the VM runs: the buffer is allocated before `armed`, files are written after
 * `write`. Between `take` and `taken` the VM is stopped; then there is only a scan of page tables and
 * copying. Where the writes of the VM can be tracked, `precopy` copies while it runs, and `take` copies only
 * what was written since (precopy.c).
 */
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <inttypes.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "pages.h"

#define SLACK 1024u /* pages */

struct options {
    uint64_t pid, bytes, track; /* descriptor of the process; 0: none */
    const char *memory, *layer;
    bool direct, plain, view;
};

struct capture {
    struct target target;
    struct buffer buffer;
    struct runs runs;
    struct precopy precopy;
    int layer;
    bool plain, taken, tracked;
};

static struct capture capture;

static void stop_tracking(void)
{
    if (capture.tracked)
        tracker_close(&capture.precopy.tracker);
}

static void parse(int argc, char **argv, struct options *o)
{
    static const struct option known[] = {
        {"pid", required_argument, NULL, 'p'},  {"memory", required_argument, NULL, 'm'},
        {"bytes", required_argument, NULL, 'b'}, {"layer", required_argument, NULL, 'l'},
        {"direct", no_argument, NULL, 'd'},     {"plain", no_argument, NULL, 'r'},
        {"view", required_argument, NULL, 'v'},
        {"track", required_argument, NULL, 't'},
        {NULL, 0, NULL, 0},
    };
    bool good = true;
    opterr = 0;
    for (int c; (c = getopt_long(argc, argv, "", known, NULL)) != -1;)
        switch (c) {
        case 'p':
            good &= parse_u64(optarg, &o->pid) && o->pid > 0 && o->pid <= INT32_MAX;
            break;
        case 'b':
            good &= parse_u64(optarg, &o->bytes) && o->bytes > 0 && o->bytes % PAGE == 0 && o->bytes <= INT64_MAX;
            break;
        case 'm':
        case 'v':
            good &= !o->memory;
            o->memory = optarg;
            o->view = c == 'v';
            break;
        case 'l':
            o->layer = optarg;
            break;
        case 'd':
            o->direct = true;
            break;
        case 'r':
            o->plain = true;
            break;
        case 't':
            good &= parse_u64(optarg, &o->track) && o->track > 0 && o->track <= INT32_MAX;
            break;
        default:
            good = false;
        }
    if (!good || optind != argc || !o->pid || !o->bytes || !o->memory || !o->layer)
        fail(EINVAL, "usage: forkd-pages capture --pid PID --memory FILE|--view FILE --bytes N --layer PATH [--direct]"
                     " [--plain] [--track FD]");
}

uint64_t micros(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000 + (uint64_t)now.tv_nsec / 1000;
}

static uint64_t with_slack(uint64_t pages) { return pages + pages / 4 + SLACK; }

static void arm(struct capture *c, const struct options *o)
{
    target_open(&c->target, (pid_t)o->pid, o->memory, o->view, o->bytes);
    scan(&c->target, c->plain, &c->runs);
    target_check(&c->target);
    c->layer = open(o->layer, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (c->layer < 0)
        fail(errno, "cannot create \"%s\"", o->layer);
    c->buffer.file = o->direct ? c->layer : -1;
    /* A layer file has its pages in order, so it cannot take them in the order of their writes. */
    if (o->track && !o->direct && !c->plain)
        c->tracked = precopy_open(&c->precopy, &c->target, (int)o->track, &c->buffer);
    if (c->tracked) {
        buffer_expect(c->runs.pages);
        printf("armed %" PRIu64 "\n", c->runs.pages);
        return;
    }
    uint64_t all = o->bytes / PAGE, wanted = with_slack(c->runs.pages);
    buffer_resize(&c->buffer, wanted < all ? wanted : all);
    printf("armed %" PRIu64 "\n", c->runs.pages);
}

static void precopy(struct capture *c, bool brief)
{
    uint64_t start = micros(), copied = c->tracked ? precopy_run(&c->precopy, &c->buffer, brief) : 0;
    target_check(&c->target);
    printf("precopied %" PRIu64 " %" PRIu64 " %" PRIu64 "\n", copied, c->precopy.rounds, micros() - start);
}

static void take(struct capture *c)
{
    uint64_t start = micros(), scanned, copied;
    if (c->tracked) {
        copied = precopy_take(&c->precopy, &c->buffer, &c->runs, &scanned);
    } else {
        scan(&c->target, c->plain, &c->runs);
        scanned = micros();
        copied = c->runs.pages;
        if (copied > c->buffer.pages)
            buffer_resize(&c->buffer, copied);
        transfer(&c->target, &c->runs, &c->buffer, true);
    }
    target_check(&c->target);
    c->taken = true;
    printf("taken %" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRIu64 "\n", c->runs.pages, scanned - start,
           micros() - scanned, copied);
}

/* If the process is taken once more, all pages count as written. */
static void untrack(struct capture *c)
{
    if (c->tracked && c->taken)
        precopy_close(&c->precopy, &c->runs);
    else
        stop_tracking();
}

static void run_command(struct capture *c, char *line)
{
    if (strcmp(line, "take") == 0) {
        take(c);
        return;
    }
    if (strcmp(line, "precopy") == 0 || strcmp(line, "precopy brief") == 0) {
        precopy(c, line[strlen("precopy")] != 0);
        return;
    }
    if (strcmp(line, "untrack") == 0) {
        lower_priority();
        untrack(c);
        printf("untracked\n");
        return;
    }
    bool apply = strncmp(line, "apply ", 6) == 0;
    if (!apply && strcmp(line, "write") != 0)
        fail(EINVAL, "unknown command \"%s\"", line);
    if (!c->taken)
        fail(EINVAL, "\"%s\" before \"take\"", apply ? "apply" : "write");
    lower_priority();
    untrack(c);
    if (apply) {
        layer_apply(line + 6, c->target.bytes, &c->buffer, &c->runs);
        printf("applied %" PRIu64 "\n", c->runs.pages * PAGE);
    } else {
        uint64_t length = layer_write(c->layer, &c->buffer, &c->runs);
        printf("written %" PRIu64 " %zu %" PRIu64 "\n", c->runs.pages, c->runs.count, length);
    }
}

int capture_command(int argc, char **argv)
{
    static char line[8192];
    struct options options = {0};
    struct capture *c = &capture;
    parse(argc, argv, &options);
    c->plain = options.plain;
    on_failure(stop_tracking);
    arm(c, &options);
    while (fflush(stdout) == 0 && fgets(line, sizeof line, stdin)) {
        size_t length = strlen(line);
        /* A last line without a line break means that the caller has exited. */
        if (line[length - 1] != '\n') {
            if (length == sizeof line - 1)
                fail(EINVAL, "the line is too long");
            break;
        }
        line[length - 1] = 0;
        run_command(c, line);
    }
    stop_tracking();
    return 0;
}
