/*
 * Finds guest memory that is made of parts of several files. Each mapping of such a file must be where the view has
 * that part of it, so the whole memory is one range of addresses, without gaps and covered once.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <sys/sysmacros.h>

#include "pages.h"

/* The file that the mapping is of, or -1. */
static int64_t file_of(const struct view *view, const struct mapping *mapping)
{
    for (uint32_t i = 0; i < view->files; i++) {
        const struct view_file *file = &view->file[i];
        struct file_name name = {.major = major(file->device),
                                 .minor = minor(file->device),
                                 .inode = file->inode,
                                 .path = file->path};
        if (mapping_is_of(mapping, &name))
            return i;
    }
    return -1;
}

/* What the view has from a guest offset on: the file, the offset in it, and the end of that part. */
struct part {
    uint64_t offset, end;
    uint32_t file;
};

/* `*next` is the first segment that ends after the offset; offsets are asked for in ascending order. */
static struct part part_at(const struct view *view, uint64_t guest, uint32_t *next)
{
    for (; *next < view->segments; ++*next) {
        struct view_segment segment = view_segment(view, *next);
        if (guest < segment.guest)
            return (struct part){.offset = guest, .end = segment.guest, .file = 0};
        if (guest < segment.guest + segment.bytes)
            return (struct part){.offset = segment.offset + (guest - segment.guest),
                                 .end = segment.guest + segment.bytes,
                                 .file = segment.file};
    }
    return (struct part){.offset = guest, .end = view->bytes, .file = 0};
}

/* maps is ordered by address, so the mappings must come in the order of the guest's memory. */
bool region_read(FILE *maps, const struct view *view, struct pieces *into, const char **why)
{
    char *line = NULL;
    size_t size = 0;
    uint64_t start = 0, done = 0;
    uint32_t next = 0;
    into->all = NULL;
    into->count = 0;
    *why = NULL;
    while (!*why && getline(&line, &size, maps) > 0) {
        struct mapping found;
        int64_t file = mapping_read(line, &found) ? file_of(view, &found) : -1;
        if (file < 0)
            continue;
        if (done == 0)
            start = found.start;
        struct part part = part_at(view, done, &next);
        if (found.mode[3] != 'p')
            *why = "is mapped shared";
        else if (done == view->bytes)
            *why = "is mapped more than once";
        else if (found.start != start + done)
            *why = "is mapped with a gap";
        else if (file != part.file || found.offset != part.offset || found.end - found.start > part.end - done)
            *why = "is not mapped as its view says";
        else
            done += found.end - found.start;
    }
    free(line);
    if (!*why && done != view->bytes)
        *why = done == 0 ? "is not mapped" : "is not mapped at the size of guest memory";
    if (*why)
        return false;
    into->all = malloc(sizeof *into->all);
    if (!into->all)
        fail(ENOMEM, "not enough memory for the list of mappings");
    into->all[into->count++] = (struct piece){.offset = 0, .bytes = view->bytes, .address = start};
    return true;
}
