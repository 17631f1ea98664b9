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
#include "net/network.h"
#include "process/proc.h"
#include "wire/link.h"

#define ENTROPY_MIN 32u
#define ENTROPY_MAX 512u

/* Bits of the fields `require` and `skip`, and of what is missing in the reply. */
#define CONNECTIONS 1u /* connections to other machines are aborted */
#define DEVICE 2u      /* there is a network device */

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

static bool has_bit(const struct field *mask, uint8_t bit) { return mask->val && mask->val[0] & bit; }

/*
 * Aborts connections and brings the network up or down, if asked to. In the order in which an aborted connection
 * does not reach the network if that is down before or after. `kept` is why connections could not be aborted,
 * or 0. Returns -1 with errno if the network cannot be changed.
 */
static int set_network(const struct field *network, bool skip, uint32_t *destroyed, int *kept)
{
    bool is_given = network->val && interface_exists();
    if (is_given && !network->val[0] && interface_set(false) < 0)
        return -1;
    *kept = !skip && connections_destroy(destroyed) < 0 ? errno : 0;
    return is_given && network->val[0] ? interface_set(true) : 0;
}

static bool is_mask(const struct field *mask, uint8_t known)
{
    return !mask->val || (mask->len == 1 && !(mask->val[0] & ~known));
}

static void reply(uint32_t id, uint32_t destroyed, uint8_t missing)
{
    uint8_t *start = link_begin(15), *b = start;
    b = field_put_u32(b, 1, destroyed);
    b = field_put_u8(b, 2, missing);
    link_end(FT_FORKED, id, (uint32_t)(b - start));
}

void after_fork(struct frame *f)
{
    struct fields all = {f->payload, f->payload + f->len};
    struct field one, have[9] = {{0}};
    uint32_t destroyed = 0;
    int more, kept = 0;
    while ((more = field_next(&all, &one)) > 0)
        if (one.key < 9)
            have[one.key] = one;
    const struct field *entropy = &have[1], *clock = &have[2], *host = &have[3], *machine = &have[4], *boot = &have[5];
    const struct field *network = &have[6], *require = &have[7], *skip = &have[8];
    if (more < 0 || entropy->len < ENTROPY_MIN || entropy->len > ENTROPY_MAX || clock->len != 8 || host->len > 64 ||
        (machine->val && machine->len != 32) || (boot->val && boot->len != 36) ||
        (host->val && (host->len == 0 || memchr(host->val, 0, host->len))) ||
        !is_mask(network, 1) || !is_mask(require, CONNECTIONS) || !is_mask(skip, CONNECTIONS) ||
        (has_bit(require, CONNECTIONS) && has_bit(skip, CONNECTIONS))) {
        link_error(f->id, EPROTO, "AFTER_FORK", NULL);
        return;
    }
    const char *name = (const char *)host->val, *step = NULL;
    if (!agent.machine) {
        errno = EPERM; /* in --serve mode the machine is the developer's */
        step = "AFTER_FORK";
    } else if (add_entropy(entropy->val, entropy->len) < 0) {
        step = "entropy";
    } else if (set_network(network, has_bit(skip, CONNECTIONS), &destroyed, &kept) < 0) {
        step = "network";
    } else if (kept && has_bit(require, CONNECTIONS)) {
        errno = kept;
        step = "connections";
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
        reply(f->id, destroyed, (uint8_t)((kept ? CONNECTIONS : 0) | (interface_exists() ? 0 : DEVICE)));
}
