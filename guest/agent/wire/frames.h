/*
 * Frames of the agent protocol (docs/spec/agent-protocol.md): codec and incremental parser.
 *
 * Pure: no I/O and no allocation, so the tests run it on the host. Integers on the wire are little-endian.
 */
#ifndef FORKD_FRAMES_H
#define FORKD_FRAMES_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#define FRAME_HEADER 16u
#define FRAME_PAYLOAD_MAX 65536u
#define FRAME_VERSION 1
#define FRAME_CHECK 0x464B4431u

/* A parser buffer holds one whole frame and the beginning of the next. */
#define PARSER_BUFFER (2u * (FRAME_PAYLOAD_MAX + FRAME_HEADER))

enum frame_type {
    FT_HELLO = 0x01,
    FT_PING = 0x02,
    FT_START = 0x10,
    FT_INPUT = 0x11,
    FT_INPUT_EOF = 0x12,
    FT_CREDIT = 0x13,
    FT_SIGNAL = 0x14,
    FT_RESIZE = 0x15,
    FT_ATTACH = 0x16,
    FT_DETACH = 0x17,
    FT_FORGET = 0x18,
    FT_LIST = 0x19,
    FT_AFTER_FORK = 0x20,
    FT_SYNC = 0x21,
    FT_POWEROFF = 0x22,
    FT_CLOCK = 0x23,
    FT_NETWORK = 0x24,
    FT_HELLO_OK = 0x81,
    FT_OK = 0x82,
    FT_ERROR = 0x83,
    FT_CLOCK_OK = 0x85,
    FT_FORKED = 0x86,
    FT_STARTED = 0x90,
    FT_OUTPUT = 0x91,
    FT_OUTPUT_EOF = 0x92,
    FT_INPUT_CREDIT = 0x93,
    FT_EXIT = 0x94,
    FT_LISTING = 0x95,
    FT_INPUT_CLOSED = 0x96,
};

struct frame {
    uint8_t type;
    uint32_t id;
    uint32_t len;
    uint8_t *payload; /* inside the parser's buffer, valid until the next call on the parser */
};

struct parser {
    uint8_t *buf; /* PARSER_BUFFER bytes */
    uint32_t start, end;
    uint64_t skipped; /* bytes that were not part of a valid frame */
};

struct fields {
    uint8_t *p, *end;
};

struct field {
    uint8_t key;
    uint32_t len;
    uint8_t *val;
};

static inline uint16_t get_u16(const uint8_t *p) { uint16_t v; memcpy(&v, p, 2); return v; }
static inline uint32_t get_u32(const uint8_t *p) { uint32_t v; memcpy(&v, p, 4); return v; }
static inline uint64_t get_u64(const uint8_t *p) { uint64_t v; memcpy(&v, p, 8); return v; }
static inline void put_u16(uint8_t *p, uint16_t v) { memcpy(p, &v, 2); }
static inline void put_u32(uint8_t *p, uint32_t v) { memcpy(p, &v, 4); }
static inline void put_u64(uint8_t *p, uint64_t v) { memcpy(p, &v, 8); }

/* Writes the 16 header bytes of a frame. */
void frame_header(uint8_t *dst, uint8_t type, uint32_t id, uint32_t len);

/* True when 16 bytes are a valid header. */
bool frame_header_valid(const uint8_t *h);

/* Appends a field and returns the position after it. */
uint8_t *field_put(uint8_t *p, uint8_t key, const void *val, uint32_t len);
uint8_t *field_put_u8(uint8_t *p, uint8_t key, uint8_t v);
uint8_t *field_put_u32(uint8_t *p, uint8_t key, uint32_t v);
uint8_t *field_put_u64(uint8_t *p, uint8_t key, uint64_t v);

/* Reads the next field of a payload: 1 with a field, 0 at the end, -1 when the payload is malformed. */
int field_next(struct fields *f, struct field *out);

/* Returns free space to read into; it is never 0 after parser_next has returned false. */
uint8_t *parser_space(struct parser *p, uint32_t *room);

/* Records that n bytes were written to the space that parser_space returned. */
void parser_fed(struct parser *p, uint32_t n);

/* Returns the next whole frame. Bytes that cannot begin a header are skipped one by one. */
bool parser_next(struct parser *p, struct frame *out);

#endif
