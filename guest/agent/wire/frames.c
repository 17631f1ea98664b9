/*
 * Frames: header check, fields and the incremental parser. See frames.h.
 *
 * Invariant of the parser: buf[start..end) is unread input. A returned frame points into the buffer, and its
 * bytes do not change until the next call, so a handler may read the payload without copying it.
 */
#include "wire/frames.h"

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "the protocol is little-endian, so the CPU must be too");

static const uint8_t magic0 = 0xF0, magic1 = 0x4B;

void frame_header(uint8_t *dst, uint8_t type, uint32_t id, uint32_t len)
{
    dst[0] = magic0;
    dst[1] = magic1;
    dst[2] = FRAME_VERSION;
    dst[3] = type;
    put_u32(dst + 4, id);
    put_u32(dst + 8, len);
    put_u32(dst + 12, get_u32(dst) ^ id ^ len ^ FRAME_CHECK);
}

bool frame_header_valid(const uint8_t *h)
{
    uint32_t id = get_u32(h + 4), len = get_u32(h + 8);
    return h[0] == magic0 && h[1] == magic1 && h[2] == FRAME_VERSION && len <= FRAME_PAYLOAD_MAX &&
           get_u32(h + 12) == (get_u32(h) ^ id ^ len ^ FRAME_CHECK);
}

uint8_t *field_put(uint8_t *p, uint8_t key, const void *val, uint32_t len)
{
    *p = key;
    put_u32(p + 1, len);
    memcpy(p + 5, val, len);
    return p + 5 + len;
}

uint8_t *field_put_u8(uint8_t *p, uint8_t key, uint8_t v) { return field_put(p, key, &v, 1); }
uint8_t *field_put_u32(uint8_t *p, uint8_t key, uint32_t v) { return field_put(p, key, &v, 4); }
uint8_t *field_put_u64(uint8_t *p, uint8_t key, uint64_t v) { return field_put(p, key, &v, 8); }

int field_next(struct fields *f, struct field *out)
{
    size_t left = (size_t)(f->end - f->p);
    if (left == 0)
        return 0;
    if (left < 5 || f->p[0] == 0)
        return -1;
    uint32_t len = get_u32(f->p + 1);
    if (len > left - 5)
        return -1;
    out->key = f->p[0];
    out->len = len;
    out->val = f->p + 5;
    f->p += 5 + len;
    return 1;
}

uint8_t *parser_space(struct parser *p, uint32_t *room)
{
    if (p->start == p->end) {
        /* Restarting at the front touches fewer pages, which matters after a fork. */
        p->start = p->end = 0;
    } else if (p->start > 0 && PARSER_BUFFER - p->end < FRAME_PAYLOAD_MAX / 2) {
        memmove(p->buf, p->buf + p->start, p->end - p->start);
        p->end -= p->start;
        p->start = 0;
    }
    *room = PARSER_BUFFER - p->end;
    return p->buf + p->end;
}

void parser_fed(struct parser *p, uint32_t n) { p->end += n; }

/* Moves start forward by at least one byte, to the next byte that can begin a header. */
static void skip(struct parser *p)
{
    uint8_t *from = p->buf + p->start + 1;
    uint32_t left = p->end - p->start - 1;
    uint8_t *hit = left ? memchr(from, magic0, left) : NULL;
    uint32_t to = hit ? (uint32_t)(hit - p->buf) : p->end;
    p->skipped += to - p->start;
    p->start = to;
}

bool parser_next(struct parser *p, struct frame *out)
{
    while (p->start < p->end) {
        uint8_t *h = p->buf + p->start;
        uint32_t have = p->end - p->start;
        if (h[0] != magic0 || (have > 1 && h[1] != magic1)) {
            skip(p);
            continue;
        }
        if (have < FRAME_HEADER)
            return false;
        if (!frame_header_valid(h)) {
            skip(p);
            continue;
        }
        uint32_t len = get_u32(h + 8);
        if (have < FRAME_HEADER + len)
            return false;
        out->type = h[3];
        out->id = get_u32(h + 4);
        out->len = len;
        out->payload = h + FRAME_HEADER;
        p->start += FRAME_HEADER + len;
        return true;
    }
    return false;
}
