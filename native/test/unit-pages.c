/* Cases that real processes do not show: unusual maps, and operations on runs. */
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

int main(void)
{
    test_maps();
    test_runs();
    printf("native: unit tests passed\n");
    return 0;
}
