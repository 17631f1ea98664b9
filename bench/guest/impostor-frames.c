/* Frames and records of the agent protocol, also wrong ones. */
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "impostor.h"

long name_count;

void pause_ms(long ms)
{
    struct timespec t = {.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000};
    nanosleep(&t, NULL);
}

void send_bytes(const uint8_t *bytes, size_t length, bool slowly)
{
    for (size_t at = 0; at < length;) {
        ssize_t n = write(port, bytes + at, slowly ? 1 : length - at);
        if (n > 0)
            at += (size_t)n;
        else
            pause_ms(2);
        if (slowly)
            pause_ms(10);
    }
}

void put32(uint8_t *to, uint32_t value)
{
    memcpy(to, &value, 4);
}

uint32_t get32(const uint8_t *from)
{
    uint32_t value;
    memcpy(&value, from, 4);
    return value;
}

/* `claimed` is the length that the header names. */
void frame_claiming(uint32_t claimed, uint8_t type, uint32_t id, const void *payload, uint32_t length,
                           bool slowly)
{
    static uint8_t bytes[HEADER + MAX_PAYLOAD];
    const uint8_t magic[] = {0xf0, 0x4b, 1, type};
    memcpy(bytes, magic, 4);
    put32(bytes + 4, id);
    put32(bytes + 8, claimed);
    put32(bytes + 12, get32(bytes) ^ id ^ claimed ^ CHECK);
    if (length > 0)
        memcpy(bytes + HEADER, payload, length);
    send_bytes(bytes, HEADER + length, slowly);
}

void frame(uint8_t type, uint32_t id, const void *payload, uint32_t length, bool slowly)
{
    frame_claiming(length, type, id, payload, length, slowly);
}

uint32_t field(uint8_t *to, uint8_t key, const void *value, uint32_t length)
{
    to[0] = key;
    put32(to + 1, length);
    if (length > 0)
        memcpy(to + 5, value, length);
    return 5 + length;
}

uint32_t field32(uint8_t *to, uint8_t key, uint32_t value)
{
    return field(to, key, &value, 4);
}

uint8_t big[MAX_PAYLOAD];

uint32_t many_fields(uint8_t *to, uint32_t from)
{
    uint32_t at = from;
    while (at + 5 <= MAX_PAYLOAD)
        at += field(to + at, 200, NULL, 0);
    return at;
}

void listing(uint32_t id, uint32_t process)
{
    static uint8_t text[30000];
    uint8_t offsets[24] = {0};
    memset(text, 'x', sizeof text);
    uint32_t at = field32(big, 1, process);
    at += field32(big + at, 2, 7);
    at += field(big + at, 3, "\1", 1);
    at += field(big + at, 4, text, sizeof text);
    at += field(big + at, 5, text, sizeof text);
    at += field(big + at, 6, "\0", 1);
    at += field(big + at, 7, offsets, sizeof offsets);
    frame(LISTING, id, big, at, false);
}

uint32_t record(uint8_t *to, uint32_t name_bytes, uint32_t target_bytes)
{
    memset(to, 0, 29);
    to[0] = target_bytes > 0 ? 'l' : 'f';
    uint16_t length = (uint16_t)name_bytes, target = (uint16_t)target_bytes;
    memcpy(to + 29, &length, 2);
    memset(to + 31, 'n', name_bytes);
    char number[24];
    int digits = snprintf(number, sizeof number, "%ld", name_count++);
    if ((uint32_t)digits <= name_bytes)
        memcpy(to + 31, number, (size_t)digits);
    memcpy(to + 31 + name_bytes, &target, 2);
    memset(to + 33 + name_bytes, 't', target_bytes);
    return 33 + name_bytes + target_bytes;
}

void output(uint32_t id, int number, uint64_t offset, const void *bytes, uint32_t length)
{
    static uint8_t payload[MAX_PAYLOAD];
    payload[0] = (uint8_t)number;
    memcpy(payload + 1, &offset, 8);
    memcpy(payload + 9, bytes, length);
    frame(OUTPUT, id, payload, 9 + length, false);
}

void started(uint32_t id, bool slowly)
{
    uint8_t payload[16];
    frame(STARTED, id, payload, field32(payload, 1, 7), slowly);
}

void ended(uint32_t id, bool slowly)
{
    uint8_t payload[28] = {0};
    frame(EXIT, id, payload, sizeof payload, slowly);
}
