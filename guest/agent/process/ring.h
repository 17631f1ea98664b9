/*
 * Byte ring that keeps the last bytes written to it. It allocates when the first byte arrives and doubles up
 * to a limit, so an idle stream uses no memory. Pure apart from malloc.
 */
#ifndef FORKD_RING_H
#define FORKD_RING_H

#include <stdint.h>

struct ring {
    uint8_t *buf;
    uint32_t cap, max; /* cap doubles and never exceeds max */
    uint32_t head;     /* index of the oldest byte */
    uint32_t len;
};

void ring_init(struct ring *r, uint32_t max);
void ring_free(struct ring *r);

/* Grows to `want` bytes in total (at most max); -1 when there is no memory, with the ring unchanged. */
int ring_grow(struct ring *r, uint32_t want);

/* Appends and drops the oldest bytes beyond the capacity. Does not grow. */
void ring_put(struct ring *r, const uint8_t *data, uint32_t n);

/* Copies n bytes that begin `back` bytes before the newest end (n <= back <= len). */
void ring_copy(const struct ring *r, uint32_t back, uint8_t *dst, uint32_t n);

/* The oldest contiguous bytes, and how many. */
const uint8_t *ring_front(const struct ring *r, uint32_t *n);

/* Drops the n oldest bytes. */
void ring_drop(struct ring *r, uint32_t n);

#endif
