/* Finds the agent's virtio port by its name. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "util.h"
#include "boot/boot.h"

#define PORT_NAME "forkd.agent"
#define PORTS "/sys/class/virtio-ports"
#define WAIT_MS 10000
#define STEP_MS 2

static bool find(char *device, size_t size)
{
    DIR *d = opendir(PORTS);
    struct dirent *e;
    bool found = false;
    while (d && !found && (e = readdir(d))) {
        char path[512], name[64];
        snprintf(path, sizeof path, PORTS "/%s/name", e->d_name);
        if (e->d_name[0] == '.' || read_whole(path, name, sizeof name) < 0)
            continue;
        name[strcspn(name, "\n")] = 0;
        found = strcmp(name, PORT_NAME) == 0;
        if (found)
            snprintf(device, size, "/dev/%s", e->d_name);
    }
    if (d)
        closedir(d);
    return found;
}

/* Polls, because the names of the ports appear some time after the driver is loaded, without an event. */
int port_open(void)
{
    char device[300];
    struct timespec step = {.tv_nsec = STEP_MS * 1000000};
    for (int ms = 0; ms < WAIT_MS; ms += STEP_MS) {
        int fd = find(device, sizeof device) ? open(device, O_RDWR | O_NONBLOCK | O_CLOEXEC) : -1;
        if (fd >= 0)
            return fd;
        nanosleep(&step, NULL);
    }
    boot_failed("port " PORT_NAME, ENODEV);
}
