/* Views that the daemon never writes: each must be refused, with its reason. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "view.h"

#define MEMORY 0x10000u
#define FILES_AT 64u
#define SEGMENTS_AT (FILES_AT + 3 * 40u)
#define PATHS_AT (SEGMENTS_AT + 3 * 32u)

static const char paths[] = "/base\0/one\0/two";
static uint8_t good[PATHS_AT + sizeof paths];

static void put32(uint8_t *at, uint32_t value) { memcpy(at, &value, sizeof value); }
static void put64(uint8_t *at, uint64_t value) { memcpy(at, &value, sizeof value); }

static void put_file(unsigned index, uint64_t bytes, uint32_t path)
{
    uint8_t *at = good + FILES_AT + index * 40;
    put64(at, 0xfe01);
    put64(at + 8, 77 + index);
    put64(at + 16, bytes);
    put64(at + 24, 5000000007);
    put32(at + 32, path);
}

static void put_segment(unsigned index, uint64_t guest, uint64_t offset, uint64_t bytes, uint32_t file)
{
    uint8_t *at = good + SEGMENTS_AT + index * 32;
    put64(at, guest);
    put64(at + 8, offset);
    put64(at + 16, bytes);
    put32(at + 24, file);
}

static void make(void)
{
    memcpy(good, "FKDMVIEW", 8);
    put32(good + 8, 1);
    put32(good + 12, 4096);
    put64(good + 16, MEMORY);
    put32(good + 24, 3);
    put32(good + 28, 3);
    put64(good + 32, sizeof good);
    put_file(0, MEMORY, 5);
    put_file(1, 0x3010, 4);
    put_file(2, 0x2020, 4);
    put_segment(0, 0x1000, 0x1000, 0x2000, 1);
    put_segment(1, 0x3000, 0x1000, 0x1000, 2); /* adjacent, of another file */
    put_segment(2, 0xf000, 0x1000, 0x1000, 1); /* the last page; parts may be used twice */
    memcpy(good + PATHS_AT, paths, sizeof paths);
}

static const char *parse(const uint8_t *data, size_t length)
{
    /* An exact copy, so that the sanitizer sees every byte that is read behind the end. */
    uint8_t *copy = malloc(length ? length : 1);
    struct view view;
    const char *why;
    memcpy(copy, data, length);
    bool fine = view_parse(copy, length, &view, &why);
    assert(fine == (why == NULL));
    free(copy);
    return why;
}

static void refused(size_t at, size_t width, uint64_t value, const char *reason)
{
    uint8_t changed[sizeof good];
    memcpy(changed, good, sizeof good);
    memcpy(changed + at, &value, width);
    const char *why = parse(changed, sizeof changed);
    assert(why && strcmp(why, reason) == 0);
}

static void test_good(void)
{
    struct view view;
    const char *why;
    assert(view_parse(good, sizeof good, &view, &why));
    assert(view.bytes == MEMORY && view.files == 3 && view.segments == 3);
    assert(strcmp(view.file[2].path, "/two") == 0 && view.file[1].bytes == 0x3010);
    struct view_segment second = view_segment(&view, 1);
    assert(second.guest == 0x3000 && second.offset == 0x1000 && second.bytes == 0x1000 && second.file == 2);
    struct stat status = {.st_dev = 0xfe01, .st_ino = 78, .st_size = 0x3010, .st_mtim = {5, 7}};
    assert(view_same(&view.file[1], &status));
    status.st_mtim.tv_nsec = 8;
    assert(!view_same(&view.file[1], &status));
    status.st_mtim.tv_nsec = 7;
    status.st_size--;
    assert(!view_same(&view.file[1], &status));
}

static void test_bad(void)
{
    refused(0, 1, 'X', "it is not a view");
    refused(8, 4, 2, "it has another version");
    refused(12, 4, 8192, "it has another page size");
    refused(16, 8, 0, "its memory size is not possible");
    refused(16, 8, MEMORY + 1, "its memory size is not possible");
    refused(16, 8, 1ull << 44, "its memory size is not possible");
    refused(16, 8, MEMORY * 2, "its base does not have the size of the memory");
    refused(24, 4, 0, "its number of files is not possible");
    refused(24, 4, 65, "its number of files is not possible");
    refused(24, 4, 64, "it is too short");
    refused(28, 4, 65537, "it has too many segments");
    refused(28, 4, 65536, "it is too short");
    refused(32, 8, sizeof good - 1, "its length differs from its header");
    refused(63, 1, 1, "its header has bytes that must be zero");
    refused(FILES_AT + 32, 4, 0, "the path of a file is not possible");
    refused(FILES_AT + 32, 4, 4096, "the path of a file is not possible");
    refused(FILES_AT + 32, 4, 9, "the path of a file is not possible");
    refused(FILES_AT + 80 + 32, 4, 5, "the path of a file is not possible");
    refused(FILES_AT + 36, 4, 1, "a file has bytes that must be zero");
    refused(PATHS_AT, 1, 'b', "the path of a file is not possible");
    refused(PATHS_AT + 2, 1, 0, "the path of a file is not possible");
    refused(SEGMENTS_AT, 8, 0x1001, "a segment is not made of pages");
    refused(SEGMENTS_AT + 8, 8, 0x1800, "a segment is not made of pages");
    refused(SEGMENTS_AT + 16, 8, 0, "a segment is not made of pages");
    refused(SEGMENTS_AT + 32, 8, 0x2000, "its segments are not in order");
    refused(SEGMENTS_AT + 64 + 16, 8, 0x2000, "a segment ends after the memory");
    refused(SEGMENTS_AT + 64, 8, 1ull << 63, "a segment ends after the memory");
    refused(SEGMENTS_AT + 24, 4, 0, "a segment names a file that is not there");
    refused(SEGMENTS_AT + 24, 4, 3, "a segment names a file that is not there");
    refused(SEGMENTS_AT + 24, 4, 2, "a segment ends after its file");
    refused(SEGMENTS_AT + 8, 8, ~0xfffull, "a segment ends after its file");
    refused(SEGMENTS_AT + 28, 4, 1, "a segment has bytes that must be zero");
    for (size_t length = 0; length < sizeof good; length++)
        assert(parse(good, length));
}

int main(void)
{
    make();
    test_good();
    test_bad();
    return 0;
}
