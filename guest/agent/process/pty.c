/* Terminals: /dev/ptmx, window size, the end-of-file character. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

#include "process/proc.h"

#ifndef TIOCGPTPEER
#define TIOCGPTPEER _IO('T', 0x41)
#endif

int pty_open(int *master, int *slave, uint16_t rows, uint16_t cols)
{
    int unlock = 0;
    struct winsize size = {.ws_row = rows, .ws_col = cols};
    *master = open("/dev/ptmx", O_RDWR | O_NOCTTY | O_CLOEXEC);
    if (*master < 0)
        return -1;
    /* Opened through the master, so that it works with a different mount of /dev/pts, too. */
    if (ioctl(*master, TIOCSPTLCK, &unlock) == 0 && ioctl(*master, TIOCSWINSZ, &size) == 0) {
        *slave = ioctl(*master, TIOCGPTPEER, O_RDWR | O_NOCTTY | O_CLOEXEC);
        if (*slave >= 0)
            return 0;
    }
    int err = errno;
    close(*master);
    *master = -1;
    errno = err;
    return -1;
}

void pty_resize(struct proc *p, uint16_t rows, uint16_t cols)
{
    struct winsize size = {.ws_row = rows, .ws_col = cols};
    if (p->pty && p->chan[1].fd >= 0)
        ioctl(p->chan[1].fd, TIOCSWINSZ, &size);
}

void pty_type_eof(int master)
{
    struct termios t;
    cc_t c = tcgetattr(master, &t) == 0 ? t.c_cc[VEOF] : 4;
    (void)!write(master, &c, 1);
}
