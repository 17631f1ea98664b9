/* CLOCK: corrects the wall clock of a machine that was stopped for a while. */
#include "fork/clock.h"

#include <errno.h>
#include <time.h>

#include "agent.h"
#include "fork/fork.h"
#include "wire/link.h"

int clock_set(uint64_t ns)
{
    struct timespec t = {.tv_sec = (time_t)(ns / 1000000000), .tv_nsec = (long)(ns % 1000000000)};
    return clock_settime(CLOCK_REALTIME, &t);
}

void clock_adjust(struct frame *f)
{
    struct fields all = {f->payload, f->payload + f->len};
    struct field one;
    struct timespec now;
    uint64_t given = 0;
    int more;
    while ((more = field_next(&all, &one)) > 0)
        if (one.key == 1 && one.len == 8)
            given = get_u64(one.val);
    if (more < 0 || given == 0) {
        link_error(f->id, EPROTO, "CLOCK", NULL);
        return;
    }
    clock_gettime(CLOCK_REALTIME, &now);
    uint64_t own = (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
    if (clock_differs(own, given)) {
        int err = 0;
        if (!agent.machine)
            err = EPERM; /* in --serve mode the clock is the developer's */
        else if (clock_set(given) < 0)
            err = errno;
        if (err) {
            link_error(f->id, err, "CLOCK", NULL);
            return;
        }
    }
    uint8_t *b = link_begin(13);
    field_put_u64(b, 1, own);
    link_end(FT_CLOCK_OK, f->id, 13);
}
