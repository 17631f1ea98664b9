/* Guest memory of a running VMM: which pages are its own, and their way into a layer file. */
#ifndef PAGES_H
#define PAGES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/types.h>

#define PAGE 4096u

/* fail.c: how every command ends that cannot go on */

/* Prints `error ERRNO text` and exits with 1. */
_Noreturn void fail(int err, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Called before the line is printed; NULL for none. */
void on_failure(void (*undo)(void));

/* io.c */

/* All of it, or errno. */
int pwrite_all(int fd, const void *data, size_t bytes, off_t at);
/* An unsigned decimal number and nothing else. */
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
 * Reads a maps file and collects the private mappings of the file. False when they do not cover 0..bytes exactly once;
 * then *why is a text.
 */
bool pieces_read(FILE *maps, const struct file_name *file, uint64_t bytes, struct pieces *into, const char **why);
/* The address of a byte of the file, and how many bytes follow it in the same piece. */
uint64_t pieces_address(const struct pieces *pieces, uint64_t offset, uint64_t *left);

/* runs.c: sets of guest pages */

struct run {
    uint64_t first; /* guest page */
    uint64_t count;
    uint64_t at; /* pages in the runs before this one */
};

struct runs {
    struct run *all; /* ascending, disjoint, no two adjacent */
    size_t count, room;
    uint64_t pages;
};

void runs_clear(struct runs *runs);
/* Pages must come in ascending order; a run that continues the last one becomes part of it. */
void runs_add(struct runs *runs, uint64_t first, uint64_t count);
/* The run that holds the page with this index. */
size_t runs_find(const struct runs *runs, uint64_t index);

/* target.c: the process */

struct target {
    pid_t pid;
    int pidfd, pagemap;
    uint64_t bytes; /* of guest memory */
    struct pieces pieces;
};

void target_open(struct target *target, pid_t pid, const char *memory, uint64_t bytes);
/* Fails unless the process has its memory still: the page tables of one that is ending look like untouched memory. */
void target_check(const struct target *target);
_Noreturn void target_unreadable(const struct target *target, int err);

/* scan.c */

/* Pages of the process that are not those of the file. */
void scan(const struct target *target, bool plain, struct runs *runs);

/* room.c: where captured pages lie until they are written */

struct room {
    uint8_t *base;
    uint64_t pages; /* that fit */
    int file;       /* -1: anonymous memory; otherwise the layer file, from its second page on */
};

/* Makes room for so many pages, all of them faulted in; what lies there stays. */
void room_resize(struct room *room, uint64_t pages);

/* transfer.c */

/* Copies all pages of the runs to base, one after the other. */
void transfer(const struct target *target, const struct runs *runs, uint8_t *base);

/* layer.c */

/* Writes what the room does not hold in place and the extent table, and sets the length. Returns it. */
uint64_t layer_write(int fd, struct room *room, const struct runs *runs);
/* Puts the pages where they belong in a file of the size of guest memory. */
void layer_apply(const char *path, uint64_t bytes, const struct room *room, const struct runs *runs);

/* capture.c, sparse.c: the commands */
void give_way(void);
int capture_command(int argc, char **argv);
int copy_command(const char *from, const char *to);
int ranges_command(const char *path);

#endif
