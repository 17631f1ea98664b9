/*
 * AFTER_FORK: makes a forked machine different from its siblings. It runs in the first milliseconds of a
 * child, so it neither accesses the disk nor opens files: the descriptors are open since boot.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/random.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "agent.h"
#include "boot/boot.h"
#include "fork/fork.h"
#include "process/proc.h"
#include "wire/link.h"

#define ENTROPY_MIN 32u
#define ENTROPY_MAX 512u

static int random_fd = -1;

void after_fork_prepare(void) { random_fd = open("/dev/urandom", O_RDWR | O_CLOEXEC); }

/* Adds entropy, then re-seeds the generator of every CPU and the language kernels. */
static int add_entropy(const uint8_t *data, uint32_t len)
{
    static struct {
        int bits, bytes;
        uint8_t data[ENTROPY_MAX];
    } pool;
    pool.bits = (int)len * 8;
    pool.bytes = (int)len;
    memcpy(pool.data, data, len);
    int r = ioctl(random_fd, RNDADDENTROPY, &pool);
    if (r == 0)
        r = ioctl(random_fd, RNDRESEEDCRNG);
    explicit_bzero(pool.data, sizeof pool.data);
    if (r == 0)
        procs_reseed();
    return r;
}

void after_fork(struct frame *f)
{
    struct fields all = {f->payload, f->payload + f->len};
    struct field one, have[6] = {{0}};
    int more;
    while ((more = field_next(&all, &one)) > 0)
        if (one.key < 6)
            have[one.key] = one;
    const struct field *entropy = &have[1], *clock = &have[2], *host = &have[3], *machine = &have[4], *boot = &have[5];
    if (more < 0 || entropy->len < ENTROPY_MIN || entropy->len > ENTROPY_MAX || clock->len != 8 || host->len > 64 ||
        (machine->val && machine->len != 32) || (boot->val && boot->len != 36) ||
        (host->val && (host->len == 0 || memchr(host->val, 0, host->len)))) {
        link_error(f->id, EPROTO, "AFTER_FORK", NULL);
        return;
    }
    const char *name = (const char *)host->val, *step = NULL;
    if (!agent.machine) {
        errno = EPERM; /* in --serve mode the machine is the developer's */
        step = "AFTER_FORK";
    } else if (add_entropy(entropy->val, entropy->len) < 0) {
        step = "entropy";
    } else if (clock_set(get_u64(clock->val)) < 0) {
        step = "clock";
    } else if (name && sethostname(name, host->len) < 0) {
        step = "hostname";
    } else if (name && identity_hostname(name, host->len) < 0) {
        step = "/etc/hostname";
    } else if (machine->val && identity_machine_id(machine->val, machine->len) < 0) {
        step = "/etc/machine-id";
    } else if (name && identity_hosts(name, host->len) < 0) {
        step = "/etc/hosts";
    } else if (boot->val && identity_boot_id(boot->val, boot->len) < 0) {
        step = "boot_id";
    }
    if (step)
        link_error(f->id, errno, step, NULL);
    else
        link_ok(f->id);
}
