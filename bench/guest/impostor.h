/* The parts of the impostor: frames, attacks, and the program itself (impostor.c). */
#ifndef IMPOSTOR_H
#define IMPOSTOR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define CHECK 0x464B4431u

enum { HEADER = 16, MAX_PAYLOAD = 65536, MAX_STREAMS = 64 };
/* host to guest */
enum { HELLO = 0x01, PING = 0x02, START = 0x10, CREDIT = 0x13, ATTACH = 0x16, LIST = 0x19 };
enum { AFTER_FORK = 0x20, SYNC = 0x21, CLOCK = 0x23 };
/* guest to host */
enum { HELLO_OK = 0x81, OK = 0x82, ERROR = 0x83, CLOCK_OK = 0x85, FORKED = 0x86, STARTED = 0x90, OUTPUT = 0x91 };
enum { OUTPUT_EOF = 0x92, INPUT_CREDIT = 0x93, EXIT = 0x94, LISTING = 0x95 };

enum way { HONEST, OVERSIZED, DEEP, ENDLESS, SILENT, SLOW, LYING, ORDER, WAYS };

/* The first ten are the kinds of START, by number. */
enum target {
    EXEC, READ, WRITE, DIR_, STAT, MKDIR, MOVE, REMOVE, CHMOD, CONNECT,
    T_HELLO, T_PING, T_LIST, T_ATTACH, T_AFTER_FORK, T_SYNC, T_CLOCK, TARGETS
};
/* A process or request whose answer never ends, or ends after `left` frames. */
struct stream {
    bool used, is_requests;
    uint32_t id, credit[4];
    uint64_t offset[4];
    int kind, number;
    long left;
};

/* impostor.c: the port of the agent, and how each kind of request is answered */
extern int port;
extern enum way ways[TARGETS];

/* impostor-frames.c: frames and records of the agent protocol. `big` is room for a payload. */
extern uint8_t big[MAX_PAYLOAD];
extern long name_count;
void pause_ms(long ms);
void send_bytes(const uint8_t *bytes, size_t length, bool slowly);
void put32(uint8_t *to, uint32_t value);
uint32_t get32(const uint8_t *from);
void frame_claiming(uint32_t claimed, uint8_t type, uint32_t id, const void *payload, uint32_t length, bool slowly);
void frame(uint8_t type, uint32_t id, const void *payload, uint32_t length, bool slowly);
uint32_t field(uint8_t *to, uint8_t key, const void *value, uint32_t length);
uint32_t field32(uint8_t *to, uint8_t key, uint32_t value);
uint32_t many_fields(uint8_t *to, uint32_t from);
void listing(uint32_t id, uint32_t process);
uint32_t record(uint8_t *to, uint32_t name_bytes, uint32_t target_bytes);
void output(uint32_t id, int number, uint64_t offset, const void *bytes, uint32_t length);
void started(uint32_t id, bool slowly);
void ended(uint32_t id, bool slowly);

/* impostor-attacks.c: answers, in the way that `ways` says */
extern struct stream streams[MAX_STREAMS];
bool pump(struct stream *s);
void reply(enum target target, uint8_t type, uint32_t id, const uint8_t *payload, uint32_t length);
void reply_list(uint32_t id);
void honest(uint32_t id, int kind, bool slowly);
void start(uint32_t id, int kind, uint32_t credit);
struct stream *stream_of(uint32_t id);

#endif
