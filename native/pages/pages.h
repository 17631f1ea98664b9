/* Guest memory of a running VMM: finds its private pages and writes them to a layer file. */
#ifndef PAGES_H
#define PAGES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/types.h>
#include <sys/uio.h>

#include "../view/view.h"

#define PAGE 4096u

/* fail.c: how every command reports an error */

/* Prints `error ERRNO text` and exits with 1. */
_Noreturn void fail(int err, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Sets a function to call before the line is printed; NULL for none. */
void on_failure(void (*undo)(void));

/* bits.c: one bit per guest page */

uint64_t *bits_new(uint64_t count);
void bits_set(uint64_t *bits, uint64_t first, uint64_t count);
/* The first index at or after `from` and before `end` whose bit is `value`; `end` if there is none. */
uint64_t bits_find(const uint64_t *bits, uint64_t from, uint64_t end, bool value);

/* io.c */

/* Writes everything: 0, or -1 with errno. */
int pwrite_all(int fd, const void *data, size_t bytes, off_t at);
/* The same for parts that follow each other in the file. Changes the parts. */
int pwritev_all(int fd, struct iovec *parts, size_t count, off_t at);
/* Forgets the first bytes of a list of parts; returns how many parts are completely gone. */
size_t skip_bytes(struct iovec *parts, size_t count, size_t bytes);
/* Accepts an unsigned decimal number and nothing else. */
bool parse_u64(const char *text, uint64_t *value);

/* maps.c: where a process maps a file */

struct piece {
    uint64_t offset; /* in the file */
    uint64_t bytes;
    uint64_t address; /* in the process */
};

struct pieces {
    struct piece *all; /* ascending by offset, without gaps, from 0 */
    size_t count;
};

struct file_name {
    uint64_t major, minor, inode;
    const char *path; /* resolved */
};

/*
 * Reads a maps file and collects the private mappings of the file. False when they do not cover 0..bytes
 * exactly once, with the reason in *why.
 */
bool pieces_read(FILE *maps, const struct file_name *file, uint64_t bytes, struct pieces *into, const char **why);
/* The address of a byte of the file, and how many bytes follow it in the same piece. */
uint64_t pieces_address(const struct pieces *pieces, uint64_t offset, uint64_t *left);

/* A line of a maps file that maps a file; the path is in the line. */
struct mapping {
    uint64_t start, end, offset, major, minor, inode;
    char mode[5];
    const char *path;
};
/* False if the line has another form. Removes the line break. */
bool mapping_read(char *line, struct mapping *mapping);
bool mapping_is_of(const struct mapping *mapping, const struct file_name *file);

/* region.c */

/*
 * Reads a maps file and finds the address range that maps the parts of the view privately: one piece. False when the
 * files of the view are mapped in another way, with the reason in *why.
 */
bool region_read(FILE *maps, const struct view *view, struct pieces *into, const char **why);

/* runs.c: sets of guest pages */

struct run {
    uint64_t first; /* guest page */
    uint64_t count;
    uint64_t at; /* pages in the runs before this one */
};

struct runs {
    struct run *all; /* ascending, disjoint, no two adjacent */
    size_t count, capacity;
    uint64_t pages;
};

void runs_clear(struct runs *runs);
/* Add pages in ascending order; a run that continues the last one extends it. */
void runs_add(struct runs *runs, uint64_t first, uint64_t count);
/* Adds the pages of both, which have none in common. */
void runs_merge(struct runs *into, const struct runs *a, const struct runs *b);
/* Adds the pages of `all` that are in `written`, which is a part of it, or whose bit is not set. */
void runs_missing(struct runs *into, const struct runs *all, const struct runs *written, const uint64_t *bits);
/* The run that contains the page with this index. */
size_t runs_find(const struct runs *runs, uint64_t index);

/* target.c: the process */

struct target {
    pid_t pid;
    int pidfd, pagemap;
    uint64_t bytes; /* of guest memory */
    struct pieces pieces;
};

/* `memory` is the file that the process maps, or a view with the files. */
void target_open(struct target *target, pid_t pid, const char *memory, bool is_view, uint64_t bytes);
/* Fails unless the process still has its memory: the page tables of an exiting process look unused. */
void target_check(const struct target *target);
_Noreturn void target_unreadable(const struct target *target, int err);

/* scan.c */

/* Finds the pages of the process that differ from the file. */
void scan(const struct target *target, bool plain, struct runs *runs);

/* What the kernel says about a page. One that is not protected counts as written. */
#define PAGE_WRITTEN (1u << 1)
#define PAGE_FILE (1u << 2)
#define PAGE_PRESENT (1u << 3)
#define PAGE_SWAPPED (1u << 4) /* or discarded while it was protected */

struct question {
    uint64_t all_of, none_of;
    bool protect; /* the pages that are found, unless their mapping is not registered */
};

/*
 * Adds the pages among `count` from `first` on that are in the page tables and match. Those that are not in memory
 * are added to `absent` instead, unless it is NULL. Only for kernels that can track.
 */
void scan_pages(const struct target *target, uint64_t first, uint64_t count, const struct question *question,
                struct runs *found, struct runs *absent);

/* track.c: which pages the process writes while it runs */

struct tracker {
    const struct target *target;
    int fd; /* the userfaultfd that the process has for us; -1: none, or no more */
};

/*
 * Takes descriptor `number` of the process and registers guest memory with it. False if the process has no
 * usable one: it was started without, or lies.
 */
bool tracker_open(struct tracker *tracker, const struct target *target, int number);
/* Removes all protection and the registration. */
void tracker_close(struct tracker *tracker);
/* Prints whether this host has what tracking needs. */
int tracking_command(void);

/* buffer.c: holds captured pages until they are written */

struct buffer {
    uint8_t *base;
    uint64_t pages; /* capacity */
    int file;       /* -1: anonymous memory; otherwise the layer file, from its second page on */
    bool placed;    /* each page is at its number in guest memory; otherwise runs follow each other */
};

/* Changes the capacity. All pages are faulted in; the content stays. */
void buffer_resize(struct buffer *buffer, uint64_t pages);
/* Gives each of so many guest pages a place, which needs memory when it is filled. False if it cannot. */
bool buffer_place(struct buffer *buffer, uint64_t pages);
/* Fails if there is not enough memory for more pages in their places. */
void buffer_expect(uint64_t pages);
/* Where a page of a run is. */
uint8_t *buffer_at(const struct buffer *buffer, const struct run *run, uint64_t skip);

/* transfer.c */

/* Copies all pages of the runs to the buffer, with two threads if `two` and if there are many. */
void transfer(const struct target *target, const struct runs *runs, const struct buffer *buffer, bool two);

/* precopy.c: copies pages while the process runs */

struct precopy {
    struct tracker tracker;
    uint64_t *copied; /* one bit per guest page: the buffer has it as it was when it was last protected */
    struct runs runs;
    uint64_t rounds; /* completed */
    bool late;       /* the time was over before the end of a round */
};

/* False if the writes of the process cannot be tracked; then nothing has changed. */
bool precopy_open(struct precopy *precopy, const struct target *target, int number, struct buffer *buffer);
/* Copies in rounds, at low priority. Returns how many pages were copied. */
uint64_t precopy_run(struct precopy *precopy, struct buffer *buffer, bool brief);
/*
 * With the process stopped: finds all its pages and copies those that the buffer does not have as they are
 * now. Returns how many were copied.
 */
uint64_t precopy_take(struct precopy *precopy, struct buffer *buffer, struct runs *all, uint64_t *scanned);
/* With the process running again: ends the tracking. Fails if pages that were taken may be wrong. */
void precopy_close(struct precopy *precopy, const struct runs *taken);

/* layer.c */

/*
 * Writes the pages (unless the buffer is the layer file) and the extent table. Returns the length of the
 * file.
 */
uint64_t layer_write(int fd, struct buffer *buffer, const struct runs *runs);
/* Writes the pages to their places in a file of the size of guest memory. */
void layer_apply(const char *path, uint64_t bytes, const struct buffer *buffer, const struct runs *runs);

/* capture.c, sparse.c: the commands */
void lower_priority(void);
uint64_t micros(void);
int capture_command(int argc, char **argv);
int copy_command(const char *from, const char *to);
int ranges_command(const char *path);

#endif
