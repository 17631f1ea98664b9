/* Requests that no well-behaved peer sends. */
#include <arpa/inet.h>
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gate.h"

static bool read_text(const char *text, struct request *request)
{
    const char *why = NULL;
    char *copy = strdup(text);
    bool good = request_read(copy, request, &why);
    free(copy);
    return good;
}

static void test_valid(void)
{
    struct request request;
    assert(read_text("listen 12 345 678 80,443", &request));
    assert(request.kind == KIND_LISTEN && strcmp(request.id, "12") == 0 && request.pid == 345);
    assert(request.start_time == 678 && request.port_count == 2 && request.ports[1] == 443);
    assert(read_text("dns a-B_9 1 18446744073709551615 10.0.2.2 53", &request));
    assert(request.kind == KIND_DNS && request.address.s_addr == inet_addr("10.0.2.2"));
    assert(read_text("connect 1 1 1 10.0.2.15 65535 120000", &request));
    assert(request.kind == KIND_CONNECT && request.timeout_ms == 120000 && request.ports[0] == 65535);
}

static void test_refused(void)
{
    static const char *const texts[] = {
        "", " ", "listen", "listen 1", "listen 1 2", "listen 1 2 3", "listen 1 2 3 ", "listen 1 0 3 80",
        "listen 1 -2 3 80", "listen 1 4294967296 3 80", "listen 1 2 18446744073709551616 80", "listen 1 2 3 80 x",
        "listen 1 2 3 +80", "listen 1 2 3 0x50", "listen \"1 2 3 80", "listen ../x 2 3 80", "dns 1 2 3 53",
        "dns 1 2 3 256.0.0.1 53", "dns 1 2 3 10.0.2.2 53,54", "connect 1 2 3 10.0.2.2 53",
        "connect 1 2 3 10.0.2.2 53 120001", "connect 1 2 3 10.0.2.2 53 5 5", "LISTEN 1 2 3 80"};
    struct request request;
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        assert(!read_text(texts[i], &request));
    /* Bounds: ids, ports. */
    char text[LINE_MAX_BYTES] = "listen ";
    memset(text + 7, 'a', ID_MAX + 1);
    strcpy(text + 7 + ID_MAX + 1, " 2 3 80");
    assert(!read_text(text, &request));
    strcpy(text, "listen 1 2 3 1");
    for (int i = 1; i < PORTS_MAX; i++)
        strcat(text, ",7");
    assert(read_text(text, &request) && request.port_count == PORTS_MAX);
    strcat(text, ",7");
    assert(!read_text(text, &request));
}

/* Random words in random order must not read or write outside their buffers. */
static void test_random(void)
{
    static const char *const words[] = {"listen", "dns", "connect", "1", "65536", ",", "10.0.2.2", "80,443", "-", "",
                                        "99999999999999999999999", "a.b", "\x01\xff"};
    struct request request;
    srand(7);
    for (int round = 0; round < 20000; round++) {
        char text[512] = "";
        for (int i = rand() % 9; i > 0; i--) {
            strcat(text, words[(size_t)rand() % (sizeof words / sizeof *words)]);
            strcat(text, rand() % 8 ? " " : "");
        }
        if (read_text(text, &request))
            assert(request.port_count >= 1 && request.port_count <= PORTS_MAX && request.pid > 0);
    }
}

int main(void)
{
    test_valid();
    test_refused();
    test_random();
    printf("gate: ok\n");
    return 0;
}
