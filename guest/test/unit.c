/*
 * Unit tests of the pure parts: frames against the golden file, the parser with truncated and random input, the
 * clock, the choice of connections, the ring. Built with the address and undefined-behaviour sanitizers.
 */
#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fork/clock.h"
#include "net/remote.h"
#include "wire/frames.h"
#include "process/ring.h"

#define GOLDEN_MAX 128

static unsigned checks;

#define CHECK(what)                                                              \
    do {                                                                         \
        checks++;                                                                \
        if (!(what)) {                                                           \
            fprintf(stderr, "%s:%d: failed: %s\n", __FILE__, __LINE__, #what);   \
            exit(1);                                                             \
        }                                                                        \
    } while (0)

struct golden {
    char name[64];
    uint8_t bytes[1024];
    uint32_t len;
};

static struct golden golden[GOLDEN_MAX];
static unsigned goldens;

static void load(const char *path)
{
    static char line[4096];
    FILE *f = fopen(path, "r");
    CHECK(f != NULL);
    while (fgets(line, sizeof line, f)) {
        if (line[0] == '#' || line[0] == '\n')
            continue;
        struct golden *g = &golden[goldens++];
        CHECK(goldens <= GOLDEN_MAX);
        char *hex = strstr(line, ": ");
        CHECK(hex && hex - line < (long)sizeof g->name);
        memcpy(g->name, line, (size_t)(hex - line));
        for (hex += 2; *hex && *hex != '\n'; hex += 2) {
            unsigned byte;
            CHECK(g->len < sizeof g->bytes && sscanf(hex, "%2x", &byte) == 1);
            g->bytes[g->len++] = (uint8_t)byte;
        }
    }
    fclose(f);
    CHECK(goldens > 40);
}

static const struct golden *named(const char *name)
{
    for (unsigned i = 0; i < goldens; i++)
        if (strcmp(golden[i].name, name) == 0)
            return &golden[i];
    fprintf(stderr, "no golden frame %s\n", name);
    exit(1);
}

static bool starts(const char *s, const char *with) { return strncmp(s, with, strlen(with)) == 0; }

static struct parser fresh(void)
{
    static uint8_t *buf;
    free(buf);
    buf = malloc(PARSER_BUFFER); /* exact size, so that the sanitizer detects one byte too many */
    return (struct parser){.buf = buf};
}

static void feed(struct parser *p, const void *data, uint32_t n)
{
    uint32_t room;
    uint8_t *to = parser_space(p, &room);
    CHECK(room >= n);
    memcpy(to, data, n);
    parser_fed(p, n);
}

static int count_fields(struct frame *f, struct field *last)
{
    struct fields all = {f->payload, f->payload + f->len};
    int n = 0, more;
    while ((more = field_next(&all, last)) > 0)
        n++;
    return more < 0 ? -1 : n;
}

static void test_golden(void)
{
    const struct golden *ping = named("ping");
    for (unsigned i = 0; i < goldens; i++) {
        const struct golden *g = &golden[i];
        bool bad_fields = starts(g->name, "bad-fields-"), bad = starts(g->name, "bad-") && !bad_fields;
        struct parser p = fresh();
        struct frame f;
        struct field last;
        feed(&p, g->bytes, g->len);
        feed(&p, ping->bytes, ping->len);
        if (!bad) {
            uint8_t again[16];
            CHECK(parser_next(&p, &f));
            CHECK(f.type == g->bytes[3] && f.len + 16 == g->len);
            frame_header(again, f.type, f.id, f.len);
            CHECK(memcmp(again, g->bytes, 16) == 0);
            CHECK(memcmp(f.payload, g->bytes + 16, f.len) == 0);
            if (bad_fields)
                CHECK(count_fields(&f, &last) == -1);
        }
        CHECK(parser_next(&p, &f) && f.type == FT_PING && f.id == 7);
        CHECK(!parser_next(&p, &f));
        CHECK(p.skipped == (bad ? g->len : 0));
    }
}

static void test_fields(void)
{
    const struct golden *g = named("start-command");
    struct frame f = {.payload = (uint8_t *)g->bytes + 16, .len = g->len - 16};
    struct field last;
    CHECK(count_fields(&f, &last) == 13);
    CHECK(last.key == 17 && last.len == 13 && memcmp(last.val, "kernel:python", 13) == 0);

    /* The encoder writes the same bytes as the golden file. */
    const struct golden *e = named("error");
    static const char text[] = "exec 'nope': No such file or directory";
    uint8_t out[256], *b = out + 16;
    b = field_put_u32(b, 1, 2);
    b = field_put(b, 2, text, sizeof text - 1);
    frame_header(out, FT_ERROR, 1, (uint32_t)(b - out - 16));
    CHECK((uint32_t)(b - out) == e->len && memcmp(out, e->bytes, e->len) == 0);
}

/* All valid frames in a row, passed in pieces of every small size. */
static void test_pieces(void)
{
    for (uint32_t piece = 1; piece < 70; piece++) {
        struct parser p = fresh();
        struct frame f;
        unsigned seen = 0, wanted = 0;
        for (unsigned i = 0; i < goldens; i++) {
            if (starts(golden[i].name, "bad-"))
                continue;
            wanted++;
            for (uint32_t at = 0; at < golden[i].len; at += piece) {
                uint32_t n = golden[i].len - at < piece ? golden[i].len - at : piece;
                feed(&p, golden[i].bytes + at, n);
                while (parser_next(&p, &f))
                    seen++;
            }
        }
        CHECK(seen == wanted && p.skipped == 0);
    }
}

/* A frame truncated anywhere, then the padding of zeros: the parser always finds the next HELLO. */
static void test_cut(void)
{
    static uint8_t zeros[65552];
    static uint8_t big[16 + 65536];
    const struct golden *hello = named("hello");
    frame_header(big, FT_INPUT, 5, 65536);
    memset(big + 16, 0xF0, 65536);
    for (uint32_t cut = 0; cut <= sizeof big; cut += cut < 40 ? 1 : 4099) {
        struct parser p = fresh();
        struct frame f;
        unsigned hellos = 0;
        feed(&p, big, cut);
        while (parser_next(&p, &f))
            CHECK(f.type == FT_INPUT);
        for (uint32_t at = 0; at < sizeof zeros; at += 16388) {
            feed(&p, zeros, 16388);
            while (parser_next(&p, &f))
                CHECK(f.type == FT_INPUT && f.id == 5);
        }
        feed(&p, hello->bytes, hello->len);
        while (parser_next(&p, &f))
            hellos += f.type == FT_HELLO;
        CHECK(hellos == 1);
    }
}

/* Random bytes with many partial headers, mixed with valid frames: never out of bounds, never without space. */
static void test_fuzz(void)
{
    const struct golden *ping = named("ping");
    srand(1);
    for (int round = 0; round < 300; round++) {
        struct parser p = fresh();
        struct frame f;
        struct field last;
        for (int step = 0; step < 200; step++) {
            uint32_t room;
            uint8_t *to = parser_space(&p, &room);
            CHECK(room > 0);
            uint32_t n = 1 + (uint32_t)rand() % 2000;
            if (n > room)
                n = room;
            for (uint32_t i = 0; i < n; i++) {
                int r = rand();
                to[i] = (uint8_t)(r % 7 == 0 ? 0xF0 : r % 7 == 1 ? 0x4B : r % 7 == 2 ? 0 : r >> 8);
            }
            if (rand() % 3 == 0 && n >= 16)
                frame_header(to + n - 16, (uint8_t)rand(), (uint32_t)rand(), (uint32_t)rand() % 66000);
            parser_fed(&p, n);
            while (parser_next(&p, &f)) {
                CHECK(f.len <= FRAME_PAYLOAD_MAX && f.payload >= p.buf && f.payload + f.len <= p.buf + p.end);
                count_fields(&f, &last);
            }
        }
        /* After enough zeros it finds frames again. */
        static uint8_t zeros[65552];
        feed(&p, zeros, 32776);
        while (parser_next(&p, &f))
            ;
        feed(&p, zeros, 32776);
        while (parser_next(&p, &f))
            ;
        feed(&p, ping->bytes, ping->len);
        CHECK(parser_next(&p, &f) && f.type == FT_PING && f.id == 7);
    }
}

static void test_clock(void)
{
    const uint64_t now = 1700000000000000000, ms = 1000000;
    CHECK(!clock_differs(now, now));
    CHECK(!clock_differs(now, now + ms / 2) && clock_differs(now, now + ms / 2 + 1));
    CHECK(!clock_differs(now + 1000 * ms, now) && clock_differs(now + 1000 * ms + 1, now));
    CHECK(clock_differs(0, UINT64_MAX) && clock_differs(UINT64_MAX, 0));
}

static struct inet_diag_msg connection(uint8_t family, uint8_t state, const char *source, const char *target)
{
    struct inet_diag_msg m = {.idiag_family = family, .idiag_state = state, .idiag_inode = 7};
    CHECK(inet_pton(family, source, m.id.idiag_src) == 1 && inet_pton(family, target, m.id.idiag_dst) == 1);
    return m;
}

static bool remote4(const char *source, const char *target)
{
    struct inet_diag_msg m = connection(AF_INET, TCP_ESTABLISHED, source, target);
    return is_remote_connection(&m);
}

static bool remote6(const char *source, const char *target)
{
    struct inet_diag_msg m = connection(AF_INET6, TCP_ESTABLISHED, source, target);
    return is_remote_connection(&m);
}

static void test_remote(void)
{
    CHECK(remote4("10.0.2.15", "198.18.0.1") && remote4("10.0.2.15", "10.0.2.15"));
    CHECK(remote4("128.0.0.1", "126.255.255.255"));
    CHECK(!remote4("127.0.0.1", "127.0.0.1") && !remote4("127.255.0.9", "10.0.2.15"));
    CHECK(!remote4("10.0.2.15", "127.1.2.3"));
    CHECK(remote6("fd00::1", "fd00::2") && remote6("::ffff:10.0.2.15", "::ffff:1.1.1.1") && remote6("::2", "::2"));
    CHECK(!remote6("::1", "::1") && !remote6("::ffff:127.0.0.1", "::ffff:127.0.0.1"));
    CHECK(remote6("7f00::1", "7f00::2")); /* begins with 127, but is not the loopback */
}

/* Which states are aborted: of a socket that a process has open, and of one that none has. */
static void test_remote_states(void)
{
    for (unsigned state = 0; state < 256; state++) {
        struct inet_diag_msg m = connection(AF_INET, (uint8_t)state, "10.0.2.15", "1.1.1.1");
        bool open = state >= TCP_ESTABLISHED && state <= TCP_CLOSING && state != TCP_TIME_WAIT &&
                    state != TCP_CLOSE && state != TCP_LISTEN;
        CHECK(is_remote_connection(&m) == open);
        m.idiag_inode = 0;
        bool unaccepted = state == TCP_ESTABLISHED || state == TCP_SYN_SENT || state == TCP_SYN_RECV ||
                          state == TCP_CLOSE_WAIT;
        CHECK(is_remote_connection(&m) == unaccepted);
    }
}

static void test_ring(void)
{
    struct ring r;
    uint8_t out[5000];
    uint32_t n;
    ring_init(&r, 10000);
    CHECK(r.buf == NULL);
    ring_put(&r, (const uint8_t *)"x", 1); /* nothing is allocated yet: dropped */
    CHECK(r.len == 0);
    CHECK(ring_grow(&r, 1) == 0 && r.cap == 4096);
    ring_put(&r, (const uint8_t *)"hello", 5);
    ring_copy(&r, 5, out, 5);
    CHECK(memcmp(out, "hello", 5) == 0);
    ring_copy(&r, 3, out, 2);
    CHECK(memcmp(out, "ll", 2) == 0);
    CHECK(memcmp(ring_front(&r, &n), "hello", 5) == 0 && n == 5);
    ring_drop(&r, 2);
    CHECK(memcmp(ring_front(&r, &n), "llo", 3) == 0 && n == 3);
    CHECK(ring_grow(&r, 5000) == 0 && r.cap == 8192);
    CHECK(memcmp(ring_front(&r, &n), "llo", 3) == 0 && n == 3);
    CHECK(ring_grow(&r, 50000) == 0 && r.cap == 10000);
    ring_free(&r);
    CHECK(r.buf == NULL && r.max == 10000 && r.len == 0);
}

/* Compared with a simple model: the last `cap` bytes of everything that was written. */
static void test_ring_model(void)
{
    static uint8_t all[400000], got[3000];
    srand(2);
    for (uint32_t i = 0; i < sizeof all; i++)
        all[i] = (uint8_t)rand();
    struct ring r;
    uint32_t total = 0, low = 0;
    ring_init(&r, 3000);
    while (total < sizeof all - 4000) {
        uint32_t n = (uint32_t)rand() % 4000;
        ring_grow(&r, r.len + n);
        ring_put(&r, all + total, n);
        total += n;
        if (total - low > r.cap)
            low = total - r.cap;
        CHECK(r.len == total - low);
        if (r.len) {
            uint32_t back = 1 + (uint32_t)rand() % r.len, take = (uint32_t)rand() % (back + 1);
            ring_copy(&r, back, got, take);
            CHECK(memcmp(got, all + total - back, take) == 0);
            uint32_t run, gone;
            const uint8_t *front = ring_front(&r, &run);
            CHECK(run > 0 && memcmp(front, all + low, run) == 0);
            gone = (uint32_t)rand() % (r.len + 1);
            ring_drop(&r, gone);
            low += gone;
        }
    }
    ring_free(&r);
}

int main(int argc, char **argv)
{
    CHECK(argc == 2);
    load(argv[1]);
    test_golden();
    test_fields();
    test_pieces();
    test_cut();
    test_fuzz();
    test_clock();
    test_remote();
    test_remote_states();
    test_ring();
    test_ring_model();
    printf("unit: %u checks passed\n", checks);
    return 0;
}
