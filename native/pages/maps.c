/*
 * Finds a file in /proc/PID/maps by device and inode. On overlays and file systems with subvolumes, maps
 * shows another device than stat(), so the path decides there.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "pages.h"

static bool same_file(const struct file_name *file, uint64_t major, uint64_t minor, uint64_t inode, const char *path)
{
    if (inode != file->inode)
        return false;
    return (major == file->major && minor == file->minor) || strcmp(path, file->path) == 0;
}

static void add_piece(struct pieces *pieces, struct piece piece)
{
    pieces->all = reallocarray(pieces->all, pieces->count + 1, sizeof *pieces->all);
    if (!pieces->all)
        fail(ENOMEM, "not enough memory for the list of mappings");
    pieces->all[pieces->count++] = piece;
}

static int by_offset(const void *a, const void *b)
{
    const struct piece *x = a, *y = b;
    return x->offset < y->offset ? -1 : x->offset > y->offset;
}

static const char *gap_or_overlap(const struct pieces *pieces, uint64_t bytes)
{
    uint64_t end = 0;
    for (size_t i = 0; i < pieces->count; i++) {
        if (pieces->all[i].offset > end)
            return "is mapped with a gap";
        if (pieces->all[i].offset < end)
            return "is mapped more than once";
        end += pieces->all[i].bytes;
    }
    if (end == bytes)
        return NULL;
    return pieces->count == 0 ? "is not mapped" : "is not mapped at the size of guest memory";
}

bool pieces_read(FILE *maps, const struct file_name *file, uint64_t bytes, struct pieces *into, const char **why)
{
    char *line = NULL;
    size_t size = 0;
    bool shared = false;
    into->all = NULL;
    into->count = 0;
    for (ssize_t length; (length = getline(&line, &size, maps)) > 0;) {
        uint64_t start, end, offset, major, minor, inode;
        char mode[5];
        int path = 0;
        if (line[length - 1] == '\n')
            line[length - 1] = 0;
        if (sscanf(line, "%" SCNx64 "-%" SCNx64 " %4s %" SCNx64 " %" SCNx64 ":%" SCNx64 " %" SCNu64 " %n", &start, &end,
                   mode, &offset, &major, &minor, &inode, &path) < 7 ||
            path == 0 || end <= start || !same_file(file, major, minor, inode, line + path))
            continue;
        shared |= mode[3] != 'p';
        add_piece(into, (struct piece){.offset = offset, .bytes = end - start, .address = start});
    }
    free(line);
    if (into->count > 0)
        qsort(into->all, into->count, sizeof *into->all, by_offset);
    *why = shared ? "is mapped shared" : gap_or_overlap(into, bytes);
    return *why == NULL;
}

uint64_t pieces_address(const struct pieces *pieces, uint64_t offset, uint64_t *left)
{
    const struct piece *piece = pieces->all;
    while (offset >= piece->offset + piece->bytes)
        piece++;
    *left = piece->offset + piece->bytes - offset;
    return piece->address + (offset - piece->offset);
}
