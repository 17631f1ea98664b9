/* Byte ring. See ring.h. */
#include "process/ring.h"

#include <stdlib.h>
#include <string.h>

#define RING_FIRST 4096u

void ring_init(struct ring *r, uint32_t max)
{
    memset(r, 0, sizeof *r);
    r->max = max;
}

void ring_free(struct ring *r)
{
    free(r->buf);
    ring_init(r, r->max);
}

int ring_grow(struct ring *r, uint32_t want)
{
    if (want > r->max)
        want = r->max;
    if (want <= r->cap)
        return 0;
    uint32_t cap = r->cap ? r->cap : RING_FIRST;
    while (cap < want)
        cap *= 2;
    if (cap > r->max)
        cap = r->max;
    uint8_t *buf = malloc(cap);
    if (!buf)
        return -1;
    ring_copy(r, r->len, buf, r->len);
    free(r->buf);
    r->buf = buf;
    r->cap = cap;
    r->head = 0;
    return 0;
}

void ring_put(struct ring *r, const uint8_t *data, uint32_t n)
{
    if (n > r->cap) {
        data += n - r->cap;
        n = r->cap;
    }
    if (n == 0)
        return;
    if (r->len + n > r->cap)
        ring_drop(r, r->len + n - r->cap);
    uint32_t at = (r->head + r->len) % r->cap;
    uint32_t first = r->cap - at < n ? r->cap - at : n;
    memcpy(r->buf + at, data, first);
    memcpy(r->buf, data + first, n - first);
    r->len += n;
}

void ring_copy(const struct ring *r, uint32_t back, uint8_t *dst, uint32_t n)
{
    if (n == 0)
        return;
    uint32_t at = (r->head + (r->len - back)) % r->cap;
    uint32_t first = r->cap - at < n ? r->cap - at : n;
    memcpy(dst, r->buf + at, first);
    memcpy(dst + first, r->buf, n - first);
}

const uint8_t *ring_front(const struct ring *r, uint32_t *n)
{
    uint32_t run = r->cap - r->head;
    *n = r->len < run ? r->len : run;
    return r->buf + r->head;
}

void ring_drop(struct ring *r, uint32_t n)
{
    r->len -= n;
    /* An empty ring restarts at the front, so that it touches the same pages. */
    r->head = r->len ? (r->head + n) % r->cap : 0;
}
