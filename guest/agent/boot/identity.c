/*
 * Identity files: hostname, machine-id, hosts and boot_id are in /run/forkd (tmpfs) and bind-mounted over
 * their places, so that a new identity for a child writes only to memory. The descriptors stay open after
 * boot.
 */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "util.h"
#include "boot/boot.h"

#define HOSTS_MAX 16384
#define HOSTS_OWN "127.0.1.1\t"

static int hostname_fd = -1, machine_fd = -1, hosts_fd = -1, boot_fd = -1;

/* Shortens the file only if it is longer: a child runs this first, and ftruncate is much code to emulate. */
static int replace(int fd, const void *data, size_t n)
{
    if (pwrite(fd, data, n, 0) != (ssize_t)n)
        return -1;
    return lseek(fd, 0, SEEK_END) > (off_t)n ? ftruncate(fd, (off_t)n) : 0;
}

int identity_hostname(const char *name, size_t len)
{
    char line[80];
    memcpy(line, name, len);
    line[len] = '\n';
    return replace(hostname_fd, line, len + 1);
}

int identity_machine_id(const uint8_t *id, size_t len)
{
    return pwrite(machine_fd, id, len, 0) == (ssize_t)len ? 0 : -1;
}

int identity_boot_id(const uint8_t *id, size_t len)
{
    return pwrite(boot_fd, id, len, 0) == (ssize_t)len ? 0 : -1;
}

/* Replaces the line with the guest's own name and keeps all other lines. */
int identity_hosts(const char *name, size_t len)
{
    static char text[HOSTS_MAX + 128];
    ssize_t n = pread(hosts_fd, text, HOSTS_MAX, 0);
    if (n < 0)
        return -1;
    text[n] = 0;
    char *own = strncmp(text, HOSTS_OWN, strlen(HOSTS_OWN)) == 0 ? text : strstr(text, "\n" HOSTS_OWN);
    if (own) {
        if (*own == '\n')
            own++;
        char *end = strchr(own, '\n');
        size_t gone = end ? (size_t)(end + 1 - own) : strlen(own);
        memmove(own, own + gone, (size_t)(text + n - own) - gone);
        n -= (ssize_t)gone;
    }
    if (n > 0 && text[n - 1] != '\n')
        text[n++] = '\n';
    memcpy(text + n, HOSTS_OWN, strlen(HOSTS_OWN));
    n += (ssize_t)strlen(HOSTS_OWN);
    memcpy(text + n, name, len);
    n += (ssize_t)len;
    text[n++] = '\n';
    return replace(hosts_fd, text, (size_t)n);
}

/* Creates the file in /run/forkd and bind-mounts it over its place, creating that if the root is writable. */
static int publish(const char *file, const char *place, const char *text, size_t n)
{
    int fd = open(file, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOATIME, 0644);
    if (fd < 0 || write_all(fd, text, n) < 0)
        boot_failed(file, errno);
    int made = open(place, O_WRONLY | O_CREAT | O_CLOEXEC | O_NOCTTY, 0644);
    if (made >= 0)
        close(made);
    if (mount(file, place, NULL, MS_BIND, NULL) < 0 && errno != ENOENT)
        boot_failed(place, errno);
    return fd;
}

static void random_hex(char *dst, size_t n)
{
    uint8_t raw[16];
    /* At boot the generator may not be ready; AFTER_FORK replaces this id anyway. */
    if (getrandom(raw, sizeof raw, GRND_INSECURE) < 0)
        memset(raw, 0, sizeof raw);
    for (size_t i = 0; i < n; i++)
        dst[i] = "0123456789abcdef"[raw[i / 2] >> (i % 2 * 4) & 15];
}

void identity_prepare(void)
{
    static char text[HOSTS_MAX];
    static const char hosts[] = "127.0.0.1\tlocalhost\n::1\tlocalhost ip6-localhost ip6-loopback\n";
    char name[65], id[64];
    mkdir("/run/forkd", 0755);

    ssize_t n = read_whole("/etc/hostname", name, sizeof name);
    size_t len = n > 0 ? strcspn(name, " \t\r\n") : 0;
    if (len == 0)
        len = text_copy(name, sizeof name, "forkd");
    name[len] = 0;
    sethostname(name, len);
    hostname_fd = publish("/run/forkd/hostname", "/etc/hostname", name, len);
    identity_hostname(name, len);

    n = read_whole("/etc/machine-id", id, sizeof id);
    if (n < 32 || strspn(id, "0123456789abcdef") != 32)
        random_hex(id, 32);
    id[32] = '\n';
    machine_fd = publish("/run/forkd/machine-id", "/etc/machine-id", id, 33);

    n = read_whole("/etc/hosts", text, sizeof text);
    hosts_fd = n > 0 ? publish("/run/forkd/hosts", "/etc/hosts", text, (size_t)n)
                     : publish("/run/forkd/hosts", "/etc/hosts", hosts, sizeof hosts - 1);
    identity_hosts(name, len);

    n = read_whole("/proc/sys/kernel/random/boot_id", id, sizeof id);
    if (n != 37)
        boot_failed("boot_id", EIO);
    boot_fd = publish("/run/forkd/boot_id", "/proc/sys/kernel/random/boot_id", id, 37);
}
