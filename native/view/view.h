/*
 * The memory of a guest as parts of several files: a base file of its whole size and, over it, runs of pages from
 * layer files. Format: docs/spec/memory-view.md.
 */
#ifndef VIEW_H
#define VIEW_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>

#define VIEW_PAGE 4096u
#define VIEW_FILES 64u
#define VIEW_SEGMENTS 65536u
/* A path has up to 4095 bytes and the byte that ends it. */
#define VIEW_BYTES_MAX (64u + VIEW_FILES * (40u + 4096u) + VIEW_SEGMENTS * 32u)

struct view_file {
    uint64_t device, inode, bytes, modified_ns;
    const char *path; /* in the parsed bytes */
};

struct view_segment {
    uint64_t guest, offset, bytes;
    uint32_t file;
};

struct view {
    const uint8_t *data; /* the parsed bytes, which stay the caller's */
    uint64_t bytes;      /* of guest memory */
    uint32_t files, segments;
    struct view_file file[VIEW_FILES]; /* the first one is the base */
};

/* Checks everything. False if the bytes are not a view, with the reason in *why. */
bool view_parse(const uint8_t *data, size_t length, struct view *view, const char **why);
/* Segments ascend by guest offset and do not overlap. */
struct view_segment view_segment(const struct view *view, uint32_t index);
/* Whether this is the file that the view was made of. */
bool view_same(const struct view_file *file, const struct stat *status);
/* Reads a file of at most VIEW_BYTES_MAX bytes. NULL with errno on failure; the caller frees the result. */
uint8_t *view_load(int fd, size_t *length);

#endif
