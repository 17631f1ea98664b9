/* Answers to the host's requests: honest, or wrong in one way. */
#include <string.h>

#include "impostor.h"

struct stream streams[MAX_STREAMS];

struct stream *stream_of(uint32_t id)
{
    for (int i = 0; i < MAX_STREAMS; i++)
        if (streams[i].used && streams[i].id == id)
            return &streams[i];
    return NULL;
}

static struct stream *new_stream(uint32_t id, int kind, uint32_t credit)
{
    for (int i = 0; i < MAX_STREAMS; i++) {
        if (streams[i].used)
            continue;
        streams[i] = (struct stream){.used = true, .id = id, .kind = kind, .number = 1, .left = -1};
        for (int number = 1; number < 4; number++)
            streams[i].credit[number] = credit;
        return &streams[i];
    }
    return NULL;
}

/* What the stream of this kind carries; whole records for a directory. */
static uint32_t body_of(int kind, uint8_t *to, uint32_t room)
{
    if (kind != DIR_ && kind != STAT) {
        memset(to, 'x', room);
        return room;
    }
    uint32_t at = 0;
    while (at + 640 <= room)
        at += record(to + at, 605, 0);
    return at;
}

/* Sends one frame of an endless answer, as far as the host's credit goes. True if something was sent. */
bool pump(struct stream *s)
{
    static uint8_t body[MAX_PAYLOAD];
    if (s->is_requests) {
        listing(s->id, (uint32_t)++name_count);
        return true;
    }
    uint32_t room = s->credit[s->number] < 60000 ? s->credit[s->number] : 60000;
    uint32_t length = room < 1000 ? 0 : body_of(s->kind, body, room);
    if (length == 0)
        return false;
    if (s->left == 0) {
        s->used = false;
        ended(s->id, false);
        return true;
    }
    output(s->id, s->number, s->offset[s->number], body, length);
    s->offset[s->number] += length;
    s->credit[s->number] -= length;
    if (s->left > 0)
        s->left--;
    return true;
}

/* Answers of one frame: to HELLO, PING, SYNC, CLOCK, AFTER_FORK, ATTACH. `payload` is the honest answer. */
void reply(enum target target, uint8_t type, uint32_t id, const uint8_t *payload, uint32_t length)
{
    struct stream *s;
    switch (ways[target]) {
    case SILENT:
        return;
    case OVERSIZED:
        if (length > 0)
            memcpy(big, payload, length);
        uint32_t at = length;
        at += field(big + at, type == HELLO_OK ? 2 : 9, NULL, 0);
        put32(big + at - 4, MAX_PAYLOAD - at);
        memset(big + at, 'v', MAX_PAYLOAD - at);
        frame(type, id, big, MAX_PAYLOAD, false);
        return;
    case DEEP:
        if (type == HELLO_OK || type == CLOCK_OK) {
            memcpy(big, payload, length);
            frame(type, id, big, many_fields(big, length), false);
        } else {
            frame(ERROR, id, big, many_fields(big, field32(big, 1, 5)), false);
        }
        return;
    case ENDLESS:
        if ((s = new_stream(id, 0, 0)))
            s->is_requests = true;
        return;
    case SLOW:
        frame(type, id, payload, length, true);
        return;
    case LYING:
        field(big, 1, "errn", 4);
        put32(big + 1, 0x7fffffff);
        frame(type == HELLO_OK ? HELLO_OK : ERROR, id, big, 9, false);
        return;
    case ORDER:
        frame(STARTED, id, payload, length, false);
        frame(type, id, payload, length, false);
        frame(type, id, payload, length, false);
        return;
    default:
        frame(type, id, payload, length, false);
    }
}

void reply_list(uint32_t id)
{
    uint8_t payload[9];
    switch (ways[T_LIST]) {
    case SILENT:
        return;
    case OVERSIZED:
        for (uint32_t n = 1; n <= 2000; n++)
            listing(id, n);
        break;
    case DEEP:
        frame(LISTING, id, big, many_fields(big, field32(big, 1, 5)), false);
        break;
    case ENDLESS: {
        struct stream *s = new_stream(id, 0, 0);
        if (s)
            s->is_requests = true;
        return;
    }
    case SLOW:
        frame(OK, id, NULL, 0, true);
        return;
    case LYING:
        /* The check is right, the length is not. */
        frame_claiming(0xfffffff0, LISTING, id, payload, field32(payload, 1, 5), false);
        return;
    case ORDER:
        frame(OK, id, NULL, 0, false);
        frame(LISTING, id, payload, field32(payload, 1, 5), false);
        return;
    default:
        break;
    }
    frame(OK, id, NULL, 0, false);
}

/* Single bytes, each in its own frame. */
static void drip(uint32_t id, int kind, uint32_t credit)
{
    static uint8_t body[70000], frames[MAX_PAYLOAD];
    uint32_t length = kind == DIR_ || kind == STAT ? record(body, 30000, 0) : 4000, fill = 0;
    for (uint64_t at = 0; at < length && at < credit; at++) {
        uint8_t *head = frames + fill;
        const uint8_t magic[] = {0xf0, 0x4b, 1, OUTPUT};
        memcpy(head, magic, 4);
        put32(head + 4, id);
        put32(head + 8, 10);
        put32(head + 12, get32(head) ^ id ^ 10 ^ CHECK);
        head[HEADER] = 1;
        memcpy(head + HEADER + 1, &at, 8);
        head[HEADER + 9] = body[at];
        fill += HEADER + 10;
        if (fill + HEADER + 10 > sizeof frames || at + 1 == length || at + 1 == credit) {
            send_bytes(frames, fill, false);
            fill = 0;
        }
    }
}

static void lie(uint32_t id, int kind)
{
    uint8_t body[64];
    switch (kind) {
    case EXEC:
        /* beyond any credit */
        started(id, false);
        for (uint64_t at = 0; at < 40; at++)
            output(id, 1, at * 60000, big, 60000);
        break;
    case READ:
        started(id, false);
        output(id, 1, 1ull << 40, "late", 4);
        break;
    case DIR_:
    case STAT:
        /* The record claims a longer name than it has. */
        started(id, false);
        memset(body, 0xff, sizeof body);
        body[0] = 'f';
        output(id, 1, 0, body, sizeof body);
        ended(id, false);
        break;
    case WRITE:
        started(id, false);
        memset(body, 0xff, 5);
        body[0] = 0;
        frame(INPUT_CREDIT, id, body, 5, false);
        break;
    default:
        started(id, false);
        frame(EXIT, id, body, 3, false);
    }
}

static void disorder(uint32_t id, int kind)
{
    uint8_t eof[9] = {1};
    switch (kind) {
    case READ:
        started(id, false);
        frame(OUTPUT_EOF, id, eof, sizeof eof, false);
        output(id, 1, 0, "after", 5);
        break;
    case DIR_:
        started(id, false);
        started(id, false);
        break;
    case STAT:
        started(id, false);
        ended(id, false);
        output(id, 1, 0, "after", 5);
        break;
    case WRITE:
        output(id, 1, 0, "before", 6);
        started(id, false);
        break;
    default:
        ended(id, false);
        started(id, false);
    }
}

void honest(uint32_t id, int kind, bool slowly)
{
    uint8_t body[128];
    started(id, slowly);
    if (kind == EXEC || kind == READ)
        output(id, 1, 0, "fine\n", 5);
    else if (kind == STAT || kind == DIR_)
        output(id, 1, 0, body, record(body, 5, 0));
    ended(id, slowly);
}

void start(uint32_t id, int kind, uint32_t credit)
{
    struct stream *s;
    if (kind < EXEC || kind > CONNECT)
        kind = EXEC;
    switch (ways[kind]) {
    case SILENT:
        return;
    case OVERSIZED:
        if (kind == STAT) {
            static uint8_t body[140000];
            uint32_t length = record(body, 65535, 65535);
            started(id, false);
            for (uint32_t at = 0; at < length; at += 60000)
                output(id, 1, at, body + at, length - at < 60000 ? length - at : 60000);
            ended(id, false);
            return;
        }
        started(id, false);
        if ((s = new_stream(id, kind, credit)))
            s->left = kind == DIR_ ? 1054 : 200; /* 98,000 names, or 12 MB */
        return;
    case DEEP:
        frame(STARTED, id, big, many_fields(big, field32(big, 1, 7)), false);
        drip(id, kind, credit);
        ended(id, false);
        return;
    case ENDLESS:
        started(id, false);
        s = new_stream(id, kind, credit);
        if (s && kind > STAT)
            s->number = 2;
        return;
    case LYING:
        lie(id, kind);
        return;
    case ORDER:
        disorder(id, kind);
        return;
    default:
        honest(id, kind, ways[kind] == SLOW);
    }
}
