/* LIST: one LISTING per process, then OK. */
#include <string.h>
#include <sys/wait.h>

#include "process/proc.h"
#include "wire/link.h"

#define LISTING_MAX 1280

void procs_list(uint32_t request)
{
    for (struct proc *p = procs_first(); p; p = p->all_next) {
        uint8_t *start = link_begin(LISTING_MAX), *b = start, offsets[24];
        for (unsigned i = 0; i < 3; i++)
            put_u64(offsets + 8 * i, p->out[i + 1].total);
        b = field_put_u32(b, 1, p->id);
        b = field_put_u32(b, 2, (uint32_t)p->pid);
        b = field_put_u8(b, 3, p->state != RUNNING);
        if (p->label)
            b = field_put(b, 4, p->label, p->label_len);
        if (p->arg)
            b = field_put(b, 5, p->arg, p->arg_len);
        b = field_put_u8(b, 6, p->kind);
        b = field_put(b, 7, offsets, sizeof offsets);
        if (p->state != RUNNING) {
            b = field_put_u8(b, 8, WIFEXITED(p->status) ? (uint8_t)WEXITSTATUS(p->status) : 0);
            b = field_put_u8(b, 9, WIFSIGNALED(p->status) ? (uint8_t)WTERMSIG(p->status) : 0);
        }
        b = field_put_u32(b, 10, p->flags);
        for (uint32_t at = 0, n; at < p->args_len; at += n + 1) {
            n = (uint32_t)strlen(p->args + at);
            b = field_put(b, 11, p->args + at, n);
        }
        b = field_put_u64(b, 12, now_ms() - p->started);
        link_end(FT_LISTING, request, (uint32_t)(b - start));
    }
    link_ok(request);
}
