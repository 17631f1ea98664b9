/* Reports an error and exits. */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "launch.h"

#define EXIT_LAUNCH_FAILED 125

_Noreturn static void report(const char *format, va_list args, const char *reason)
{
    char text[4096];
    vsnprintf(text, sizeof text, format, args);
    /* An error is one line, also for a path with a line break. */
    for (char *c = text; *c; c++)
        if (*c == '\n' || *c == '\r')
            *c = '?';
    dprintf(STDERR_FILENO, "forkd-launch: %s%s%s\n", text, reason ? ": " : "", reason ? reason : "");
    _exit(EXIT_LAUNCH_FAILED);
}

void fail(const char *format, ...)
{
    const char *reason = strerror(errno);
    va_list args;
    va_start(args, format);
    report(format, args, reason);
}

void refuse(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    report(format, args, NULL);
}
