/* Cases that real processes do not show: unusual maps, and operations on runs, bits and parts. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "pages.h"

static const struct file_name file = {.major = 0xfe, .minor = 0x1, .inode = 77, .path = "/data/mem file"};

static const char *read_maps(const char *text, uint64_t bytes, struct pieces *pieces)
{
    const char *why = NULL;
    FILE *maps = fmemopen((void *)text, strlen(text), "r");
    bool good = pieces_read(maps, &file, bytes, pieces, &why);
    fclose(maps);
    assert(good == (why == NULL));
    return why;
}

static void refused(const char *text, const char *reason)
{
    struct pieces pieces;
    const char *why = read_maps(text, 0x4000, &pieces);
    assert(why && strcmp(why, reason) == 0);
    free(pieces.all);
}

static void test_maps(void)
{
    struct pieces pieces;
    uint64_t left;
    /* Two pieces, the second at a lower address; other mappings before, between and after. */
    assert(!read_maps("00400000-00401000 r-xp 00000000 fe:01 12                         /bin/x\n"
                      "10000000-10001000 rw-p 00003000 fe:01 77                         /data/mem file\n"
                      "20000000-20003000 rw-p 00000000 fe:01 77                         /data/mem file (deleted)\n"
                      "30000000-30004000 rw-p 00000000 fe:02 77                         /other\n"
                      "40000000-40001000 rw-p 00000000 00:00 0 \n",
                      0x4000, &pieces));
    assert(pieces.count == 2);
    assert(pieces_address(&pieces, 0x2000, &left) == 0x20002000 && left == 0x1000);
    assert(pieces_address(&pieces, 0x3000, &left) == 0x10000000 && left == 0x1000);
    free(pieces.all);
    /* Another device, the same path. */
    assert(!read_maps("20000000-20004000 rw-p 00000000 00:2b 77      /data/mem file\n", 0x4000, &pieces));
    free(pieces.all);
    refused("20000000-20004000 rw-p 00000000 00:2b 77      /data/other\n", "is not mapped");
    refused("20000000-20004000 rw-p 00000000 fe:01 78      /data/mem file\n", "is not mapped");
    refused("20000000-20004000 rw-s 00000000 fe:01 77      /data/mem file\n", "is mapped shared");
    refused("20000000-20001000 rw-p 00000000 fe:01 77      /data/mem file\n"
            "30000000-30002000 rw-p 00002000 fe:01 77      /data/mem file\n",
            "is mapped with a gap");
    refused("20000000-20004000 rw-p 00000000 fe:01 77      /data/mem file\n"
            "30000000-30001000 rw-p 00000000 fe:01 77      /data/mem file\n",
            "is mapped more than once");
    refused("20000000-20008000 rw-p 00000000 fe:01 77      /data/mem file\n",
            "is not mapped at the size of guest memory");
    refused("20000000-20003000 rw-p 00000000 fe:01 77      /data/mem file\n",
            "is not mapped at the size of guest memory");
    refused("nonsense\n\n20000000-20004000\n", "is not mapped");
}

/* Page 1 and 2 from the first layer, page 3 from the second, the rest from the base. */
static const struct {
    uint64_t guest, offset, bytes;
    uint32_t file, zero;
} segments[] = {{0x1000, 0x1000, 0x2000, 1, 0}, {0x3000, 0x5000, 0x1000, 2, 0}};

static const char *read_region(const char *text, struct pieces *pieces)
{
    /* As in a parsed view: header, files, segments. */
    static uint8_t data[64 + 3 * 40 + sizeof segments];
    memcpy(data + 64 + 3 * 40, segments, sizeof segments);
    struct view view = {.data = data, .bytes = 0x6000, .files = 3, .segments = 2};
    for (uint32_t i = 0; i < 3; i++)
        view.file[i] = (struct view_file){.device = 0xfe01, .inode = 77 + i, .path = i == 0 ? "/base" : "/layer"};
    const char *why = NULL;
    FILE *maps = fmemopen((void *)text, strlen(text), "r");
    bool good = region_read(maps, &view, pieces, &why);
    fclose(maps);
    assert(good == (why == NULL));
    return why;
}

static void region_refused(const char *text, const char *reason)
{
    struct pieces pieces;
    const char *why = read_region(text, &pieces);
    assert(why && strcmp(why, reason) == 0 && !pieces.all);
}

#define BASE_0 "20000000-20001000 rw-p 00000000 fe:01 77 /base\n"
#define ONE_1 "20001000-20003000 rw-p 00001000 fe:01 78 /layer\n"
#define TWO_3 "20003000-20004000 rw-p 00005000 fe:01 79 /layer\n"
#define BASE_4 "20004000-20006000 rw-p 00004000 fe:01 77 /base\n"

static void test_region(void)
{
    struct pieces pieces;
    assert(!read_region("10000000-10001000 r-xp 00000000 fe:01 12 /bin/x\n" BASE_0 ONE_1 TWO_3 BASE_4
                        "40000000-40001000 rw-p 00000000 00:00 0 \n",
                        &pieces));
    assert(pieces.count == 1 && pieces.all[0].address == 0x20000000 && pieces.all[0].bytes == 0x6000);
    free(pieces.all);
    /* A part can be split; a file system may show another device. */
    assert(!read_region(BASE_0 "20001000-20002000 rw-p 00001000 fe:01 78 /layer\n"
                               "20002000-20003000 r--p 00002000 00:2b 78 /layer\n" TWO_3 BASE_4,
                        &pieces));
    free(pieces.all);
    region_refused("", "is not mapped");
    region_refused("20000000-20006000 rw-p 00000000 fe:01 77 /base\n", "is not mapped as its view says");
    region_refused(BASE_0 ONE_1 TWO_3, "is not mapped at the size of guest memory");
    region_refused(BASE_0 ONE_1 BASE_4, "is mapped with a gap");
    region_refused(BASE_0 ONE_1 TWO_3 BASE_4 "30000000-30001000 rw-p 00000000 fe:01 77 /base\n",
                   "is mapped more than once");
    region_refused(BASE_0 "20001000-20003000 rw-p 00002000 fe:01 78 /layer\n" TWO_3 BASE_4,
                   "is not mapped as its view says");
    region_refused(BASE_0 "20001000-20004000 rw-p 00001000 fe:01 78 /layer\n" BASE_4,
                   "is not mapped as its view says");
    region_refused(BASE_0 ONE_1 "20003000-20004000 rw-p 00005000 fe:01 78 /layer\n" BASE_4,
                   "is not mapped as its view says");
    region_refused(BASE_0 "20001000-20003000 rw-s 00001000 fe:01 78 /layer\n" TWO_3 BASE_4, "is mapped shared");
}

static void test_runs(void)
{
    struct runs runs = {0};
    runs_add(&runs, 3, 2);
    runs_add(&runs, 5, 1);
    runs_add(&runs, 7, 1);
    assert(runs.count == 2 && runs.pages == 4);
    assert(runs.all[0].first == 3 && runs.all[0].count == 3 && runs.all[1].at == 3);
    assert(runs_find(&runs, 0) == 0 && runs_find(&runs, 2) == 0 && runs_find(&runs, 3) == 1);
    runs_clear(&runs);
    for (uint64_t i = 0; i < 10000; i++)
        runs_add(&runs, i * 2, 1);
    assert(runs.count == 10000 && runs.pages == 10000);
    for (uint64_t i = 0; i < 10000; i++)
        assert(runs_find(&runs, i) == i);
    free(runs.all);
}

static void test_bits(void)
{
    uint64_t *bits = bits_new(300);
    bits_set(bits, 3, 2);
    bits_set(bits, 60, 140);
    bits_set(bits, 299, 1);
    assert(bits_find(bits, 0, 300, true) == 3 && bits_find(bits, 3, 300, false) == 5);
    assert(bits_find(bits, 5, 300, true) == 60 && bits_find(bits, 60, 300, false) == 200);
    assert(bits_find(bits, 200, 300, true) == 299 && bits_find(bits, 200, 299, true) == 299);
    assert(bits_find(bits, 299, 300, false) == 300 && bits_find(bits, 70, 100, false) == 100);
    assert(bits_find(bits, 10, 10, true) == 10);
    for (uint64_t i = 0; i < 300; i++) {
        bool set = i == 3 || i == 4 || (i >= 60 && i < 200) || i == 299;
        assert((bits_find(bits, i, 300, true) == i) == set);
    }
    free(bits);
}

/* The pages to copy, found by asking for every page. */
static void test_missing(void)
{
    struct runs all = {0}, written = {0}, missing = {0}, merged = {0}, rest = {0};
    uint64_t *bits = bits_new(2000);
    bool in[2000] = {false}, dirty[2000] = {false}, copied[2000] = {false};
    for (int turn = 0; turn < 200; turn++) {
        runs_clear(&all);
        runs_clear(&written);
        runs_clear(&missing);
        memset(bits, 0, 2000 / 8);
        for (uint64_t i = 0; i < 2000; i++) {
            /* Long runs and short ones. */
            in[i] = i > 0 && rand() % 4 ? in[i - 1] : rand() % 2;
            dirty[i] = in[i] && (i > 0 && rand() % 3 ? dirty[i - 1] : rand() % 3 == 0);
            copied[i] = i > 0 && rand() % 8 ? copied[i - 1] : rand() % 2;
            if (in[i])
                runs_add(&all, i, 1);
            if (dirty[i])
                runs_add(&written, i, 1);
            if (copied[i])
                bits_set(bits, i, 1);
        }
        runs_clear(&merged);
        runs_clear(&rest);
        for (uint64_t i = 0; i < 2000; i++)
            if (in[i] && !dirty[i])
                runs_add(&rest, i, 1);
        runs_merge(&merged, &rest, &written);
        assert(merged.count == all.count && merged.pages == all.pages);
        assert(memcmp(merged.all, all.all, all.count * sizeof *all.all) == 0);
        runs_missing(&missing, &all, &written, bits);
        uint64_t at = 0;
        for (uint64_t i = 0; i < 2000; i++)
            if (in[i] && (dirty[i] || !copied[i])) {
                const struct run *run = &missing.all[runs_find(&missing, at)];
                assert(run->first + (at - run->at) == i);
                at++;
            }
        assert(at == missing.pages);
    }
    free(all.all);
    free(written.all);
    free(missing.all);
    free(merged.all);
    free(rest.all);
    free(bits);
}

static void test_parts(void)
{
    uint8_t bytes[30];
    struct iovec parts[] = {{bytes, 10}, {bytes + 10, 5}, {bytes + 15, 15}};
    assert(skip_bytes(parts, 3, 4) == 0 && parts[0].iov_base == bytes + 4 && parts[0].iov_len == 6);
    assert(skip_bytes(parts, 3, 11) == 2 && parts[2].iov_base == bytes + 15 && parts[2].iov_len == 15);
    assert(skip_bytes(parts + 2, 1, 15) == 1);
}

int main(void)
{
    test_bits();
    test_missing();
    test_parts();
    test_maps();
    test_region();
    test_runs();
    printf("native: unit tests passed\n");
    return 0;
}
