/*
 * Opens the device with which the program can make a userfaultfd, although its filter refuses the system call
 * (native/preload/track.c). A program without it works the same.
 */
#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

#include "launch.h"

void track_open(struct options *options)
{
    static char variable[32];
    if (!options->track)
        return;
    int fd = open("/dev/userfaultfd", O_RDWR | O_CLOEXEC);
    if (fd < 0) {
        close(options->track);
        options->track = 0;
        return;
    }
    descriptors_place(fd, options->track);
    snprintf(variable, sizeof variable, "FORKD_TRACK=%d", options->track);
    options->env[options->env_count++] = variable;
}
