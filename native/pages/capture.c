/*
 * capture: copies the pages of a VMM in which its private mapping of a file differs from the file.
 *
 * Everything slow happens while the VM runs: the buffer is allocated before `armed`, files are written after
 * `write`. Between `take` and `taken` the VM is stopped; then there is only a scan of page tables and
 * copying.
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
    uint64_t pid, bytes;
    const char *memory, *layer;
    bool direct, plain, view;
};

struct capture {
    struct target target;
    struct buffer buffer;
    struct runs runs;
    int layer;
    bool plain, taken;
};

static void parse(int argc, char **argv, struct options *o)
{
    static const struct option known[] = {
        {"pid", required_argument, NULL, 'p'},  {"memory", required_argument, NULL, 'm'},
        {"bytes", required_argument, NULL, 'b'}, {"layer", required_argument, NULL, 'l'},
        {"direct", no_argument, NULL, 'd'},     {"plain", no_argument, NULL, 'r'},
        {"view", required_argument, NULL, 'v'},
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
        default:
            good = false;
        }
    if (!good || optind != argc || !o->pid || !o->bytes || !o->memory || !o->layer)
        fail(EINVAL, "usage: forkd-pages capture --pid PID --memory FILE|--view FILE --bytes N --layer PATH [--direct] [--plain]");
}

static uint64_t micros(void)
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
    uint64_t all = o->bytes / PAGE, wanted = with_slack(c->runs.pages);
    buffer_resize(&c->buffer, wanted < all ? wanted : all);
    printf("armed %" PRIu64 "\n", c->runs.pages);
}

static void take(struct capture *c)
{
    uint64_t start = micros();
    scan(&c->target, c->plain, &c->runs);
    uint64_t scanned = micros();
    if (c->runs.pages > c->buffer.pages)
        buffer_resize(&c->buffer, c->runs.pages);
    transfer(&c->target, &c->runs, c->buffer.base);
    target_check(&c->target);
    c->taken = true;
    printf("taken %" PRIu64 " %" PRIu64 " %" PRIu64 "\n", c->runs.pages, scanned - start, micros() - scanned);
}

static void run_command(struct capture *c, char *line)
{
    if (strcmp(line, "take") == 0) {
        take(c);
        return;
    }
    bool apply = strncmp(line, "apply ", 6) == 0;
    if (!apply && strcmp(line, "write") != 0)
        fail(EINVAL, "unknown command \"%s\"", line);
    if (!c->taken)
        fail(EINVAL, "\"%s\" before \"take\"", apply ? "apply" : "write");
    lower_priority();
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
    struct capture c = {0};
    parse(argc, argv, &options);
    c.plain = options.plain;
    arm(&c, &options);
    while (fflush(stdout) == 0 && fgets(line, sizeof line, stdin)) {
        size_t length = strlen(line);
        /* A last line without a line break means that the caller has exited. */
        if (line[length - 1] != '\n') {
            if (length == sizeof line - 1)
                fail(EINVAL, "the line is too long");
            break;
        }
        line[length - 1] = 0;
        run_command(&c, line);
    }
    return 0;
}
