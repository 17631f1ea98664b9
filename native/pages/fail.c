/* Reports an error and exits. */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "pages.h"

static void (*undo_work)(void);

void on_failure(void (*undo)(void)) { undo_work = undo; }

void fail(int err, const char *format, ...)
{
    char text[2048];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    /* An error is one line, also for a path with a line break. */
    for (char *c = text; *c; c++)
        if (*c == '\n' || *c == '\r')
            *c = '?';
    const char *name = strerrorname_np(err);
    if (undo_work)
        undo_work();
    printf("error %s %s\n", name ? name : "EIO", text);
    fflush(stdout);
    /* Not exit(), which would run handlers while other threads still copy. */
    _exit(1);
}
