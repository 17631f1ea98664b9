/*
 * Passes frames from the host to their handlers. The reply to a wrong payload is ERROR EPROTO. A frame for a
 * process that no longer exists is dropped: the host could not know.
 */
#include <errno.h>
#include <string.h>
#include <time.h>

#include "agent.h"
#include "boot/boot.h"
#include "fork/fork.h"
#include "net/network.h"
#include "process/proc.h"
#include "wire/link.h"

#define NONCE 16u
#define INPUT_MARK 1

static void reply_malformed(struct frame *f) { link_error(f->id, EPROTO, "malformed frame", NULL); }

static void hello(struct frame *f)
{
    struct fields all = {f->payload, f->payload + f->len};
    struct field one;
    struct timespec up;
    uint8_t nonce[NONCE];
    int more;
    bool seen = false;
    while ((more = field_next(&all, &one)) > 0)
        if (one.key == 1 && one.len == NONCE) {
            memcpy(nonce, one.val, NONCE);
            seen = true;
        }
    if (more < 0 || !seen) {
        reply_malformed(f);
        return;
    }
    procs_hello();
    power_hello();
    link_reset();
    clock_gettime(CLOCK_BOOTTIME, &up);
    uint8_t *start = link_begin(128), *b = start;
    b = field_put(b, 1, nonce, NONCE);
    b = field_put(b, 2, AGENT_VERSION, sizeof AGENT_VERSION - 1);
    b = field_put_u64(b, 3, (uint64_t)up.tv_sec * 1000 + (uint64_t)up.tv_nsec / 1000000);
    b = field_put_u32(b, 4, procs_unfinished());
    link_end(FT_HELLO_OK, f->id, (uint32_t)(b - start));
}

static void start(struct frame *f)
{
    static struct start s;
    const char *step;
    int err = start_parse(f, &s, &step);
    if (err)
        link_error(f->id, err, step, err == EINVAL ? s.user : NULL);
    else
        proc_start(f->id, &s);
}

static bool input_stream(const struct frame *f) { return f->len >= 1 && (f->payload[0] == 0 || f->payload[0] == 3); }

/* A truncated payload that was padded with zeros has no mark at its end: a process never gets the padding. */
static bool input_whole(const struct frame *f) { return f->len >= 2 && f->payload[f->len - 1] == INPUT_MARK; }

static void attach(struct frame *f)
{
    struct proc *p = proc_find(f->id);
    if (!p) {
        link_error(f->id, ESRCH, "ATTACH", NULL);
        return;
    }
    input_attach(p); /* before OK, so that the host knows it when it may write */
    link_ok(f->id);
    proc_attach(p, f->payload);
}

/* Frames about one process that have no reply; p is NULL when the process no longer exists. */
static bool about_process(struct frame *f, struct proc *p)
{
    uint8_t *b = f->payload;
    switch (f->type) {
    case FT_INPUT:
        if (!input_stream(f) || !input_whole(f))
            return false;
        if (p)
            input_write(p, b[0], b + 1, f->len - 2);
        return true;
    case FT_INPUT_EOF:
        if (!input_stream(f) || f->len != 1)
            return false;
        if (p)
            input_eof(p, b[0]);
        return true;
    case FT_CREDIT:
        if (f->len != 5 || b[0] < 1 || b[0] > 3)
            return false;
        if (p && p->attached) {
            p->out[b[0]].credit += get_u32(b + 1);
            proc_dirty(p);
        }
        return true;
    case FT_SIGNAL:
        if (f->len != 2 || b[0] > 64 || b[1] > 1)
            return false;
        if (p)
            proc_signal(p, b[0], b[1] == 1);
        return true;
    case FT_RESIZE:
        if (f->len != 4)
            return false;
        if (p)
            pty_resize(p, get_u16(b), get_u16(b + 2));
        return true;
    case FT_DETACH:
        if (p)
            proc_detach(p);
        return f->len == 0;
    case FT_FORGET:
        if (p)
            proc_forget(p);
        return f->len == 0;
    }
    return false;
}

void dispatch(struct frame *f)
{
    switch (f->type) {
    case FT_HELLO: hello(f); break;
    case FT_PING: link_ok(f->id); break;
    case FT_START: start(f); break;
    case FT_ATTACH: f->len == 36 ? attach(f) : reply_malformed(f); break;
    case FT_LIST: procs_list(f->id); break;
    case FT_AFTER_FORK: after_fork(f); break;
    case FT_SYNC: power_sync(f->id); break;
    case FT_POWEROFF: power_off(); break;
    case FT_CLOCK: clock_adjust(f); break;
    case FT_NETWORK: interface_change(f); break;
    default:
        if (!about_process(f, proc_find(f->id)))
            reply_malformed(f);
    }
}
