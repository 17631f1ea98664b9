/*
 * Finds a file in /proc/PID/maps by device and inode. On overlays and file systems with subvolumes, maps
 * shows another device than stat(), so the path decides there.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "pages.h"

bool mapping_read(char *line, struct mapping *mapping)
{
    int path = 0;
    line[strcspn(line, "\n")] = 0;
    if (sscanf(line, "%" SCNx64 "-%" SCNx64 " %4s %" SCNx64 " %" SCNx64 ":%" SCNx64 " %" SCNu64 " %n", &mapping->start,
               &mapping->end, mapping->mode, &mapping->offset, &mapping->major, &mapping->minor, &mapping->inode,
               &path) < 7)
        return false;
    mapping->path = line + path;
    return path != 0 && mapping->end > mapping->start;
}

bool mapping_is_of(const struct mapping *mapping, const struct file_name *file)
{
    if (mapping->inode != file->inode)
        return false;
    bool same_device = mapping->major == file->major && mapping->minor == file->minor;
    return same_device || strcmp(mapping->path, file->path) == 0;
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
    while (getline(&line, &size, maps) > 0) {
        struct mapping found;
        if (!mapping_read(line, &found) || !mapping_is_of(&found, file))
            continue;
        shared |= found.mode[3] != 'p';
        add_piece(into,
                  (struct piece){.offset = found.offset, .bytes = found.end - found.start, .address = found.start});
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
