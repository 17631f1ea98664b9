#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "view.h"

#define HEADER 64u
#define FILE_ENTRY 40u
#define SEGMENT_ENTRY 32u
#define PATH_BYTES 4095u
#define MEMORY_LIMIT (1ull << 44)

static const char magic[8] = {'F', 'K', 'D', 'M', 'V', 'I', 'E', 'W'};

/* Every host that this runs on is little-endian, as the file is. */
static uint32_t u32(const uint8_t *at)
{
    uint32_t value;
    memcpy(&value, at, sizeof value);
    return value;
}

static uint64_t u64(const uint8_t *at)
{
    uint64_t value;
    memcpy(&value, at, sizeof value);
    return value;
}

static const char *check_header(const uint8_t *data, size_t length, struct view *view)
{
    if (length < HEADER || memcmp(data, magic, sizeof magic) != 0)
        return "it is not a view";
    if (u32(data + 8) != 1)
        return "it has another version";
    if (u32(data + 12) != VIEW_PAGE)
        return "it has another page size";
    view->bytes = u64(data + 16);
    view->files = u32(data + 24);
    view->segments = u32(data + 28);
    if (view->bytes == 0 || view->bytes % VIEW_PAGE != 0 || view->bytes >= MEMORY_LIMIT)
        return "its memory size is not possible";
    if (view->files == 0 || view->files > VIEW_FILES)
        return "its number of files is not possible";
    if (view->segments > VIEW_SEGMENTS)
        return "it has too many segments";
    if (u64(data + 32) != length)
        return "its length differs from its header";
    for (size_t i = 40; i < HEADER; i++)
        if (data[i] != 0)
            return "its header has bytes that must be zero";
    return NULL;
}

/* The paths follow the tables, in the order of the files, and end the view. */
static const char *check_files(const uint8_t *data, size_t length, struct view *view)
{
    size_t path = HEADER + view->files * FILE_ENTRY + (size_t)view->segments * SEGMENT_ENTRY;
    if (path > length)
        return "it is too short";
    for (uint32_t i = 0; i < view->files; i++) {
        const uint8_t *entry = data + HEADER + i * FILE_ENTRY;
        size_t bytes = u32(entry + 32);
        if (u32(entry + 36) != 0)
            return "a file has bytes that must be zero";
        if (bytes < 2 || bytes > PATH_BYTES || length - path < bytes + 1)
            return "the path of a file is not possible";
        if (data[path] != '/' || data[path + bytes] != 0 || memchr(data + path, 0, bytes))
            return "the path of a file is not possible";
        view->file[i] = (struct view_file){.device = u64(entry),
                                           .inode = u64(entry + 8),
                                           .bytes = u64(entry + 16),
                                           .modified_ns = u64(entry + 24),
                                           .path = (const char *)data + path};
        path += bytes + 1;
    }
    if (path != length)
        return "it has bytes after its last path";
    if (view->file[0].bytes != view->bytes)
        return "its base does not have the size of the memory";
    return NULL;
}

static const char *check_segments(const struct view *view)
{
    uint64_t end = 0;
    for (uint32_t i = 0; i < view->segments; i++) {
        struct view_segment segment = view_segment(view, i);
        const uint8_t *entry = view->data + HEADER + view->files * FILE_ENTRY + (size_t)i * SEGMENT_ENTRY;
        if (u32(entry + 28) != 0)
            return "a segment has bytes that must be zero";
        if (segment.bytes == 0 || (segment.guest | segment.offset | segment.bytes) % VIEW_PAGE != 0)
            return "a segment is not made of pages";
        if (segment.guest < end)
            return "its segments are not in order";
        if (segment.guest > view->bytes || segment.bytes > view->bytes - segment.guest)
            return "a segment ends after the memory";
        if (segment.file == 0 || segment.file >= view->files)
            return "a segment names a file that is not there";
        uint64_t size = view->file[segment.file].bytes;
        if (segment.offset > size || segment.bytes > size - segment.offset)
            return "a segment ends after its file";
        end = segment.guest + segment.bytes;
    }
    return NULL;
}

bool view_parse(const uint8_t *data, size_t length, struct view *view, const char **why)
{
    *view = (struct view){.data = data};
    *why = check_header(data, length, view);
    if (!*why)
        *why = check_files(data, length, view);
    if (!*why)
        *why = check_segments(view);
    return *why == NULL;
}

struct view_segment view_segment(const struct view *view, uint32_t index)
{
    const uint8_t *entry = view->data + HEADER + view->files * FILE_ENTRY + (size_t)index * SEGMENT_ENTRY;
    return (struct view_segment){
        .guest = u64(entry), .offset = u64(entry + 8), .bytes = u64(entry + 16), .file = u32(entry + 24)};
}

bool view_same(const struct view_file *file, const struct stat *status)
{
    uint64_t modified = (uint64_t)status->st_mtim.tv_sec * 1000000000u + (uint64_t)status->st_mtim.tv_nsec;
    return file->device == (uint64_t)status->st_dev && file->inode == (uint64_t)status->st_ino &&
           file->bytes == (uint64_t)status->st_size && file->modified_ns == modified;
}

uint8_t *view_load(int fd, size_t *length)
{
    struct stat status;
    if (fstat(fd, &status) < 0)
        return NULL;
    if (!S_ISREG(status.st_mode) || status.st_size <= 0 || (uint64_t)status.st_size > VIEW_BYTES_MAX) {
        errno = EINVAL;
        return NULL;
    }
    size_t size = (size_t)status.st_size;
    uint8_t *data = malloc(size);
    for (size_t done = 0; data && done < size;) {
        ssize_t n = pread(fd, data + done, size - done, (off_t)done);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0) {
            int err = n < 0 ? errno : EINVAL;
            free(data);
            errno = err;
            return NULL;
        }
        done += (size_t)n;
    }
    *length = size;
    return data;
}
