/*
 * What PID 1 sets up before it serves: modules, root, mounts, loopback, identity, network. See "Boot" in the
 * protocol.
 * A failure is printed on the console and resets the machine, so that a VMM with -no-reboot exits.
 */
#include <errno.h>
#include <fcntl.h>
#include <net/if.h>
#include <stdio.h>
#include <string.h>
#if defined(__x86_64__)
#include <sys/io.h>
#endif
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "util.h"
#include "boot/boot.h"
#include "fork/fork.h"
#include "net/network.h"

#define ROOT_DEVICE "/dev/vda"
#define WAIT_MS 10000
#define STEP_MS 2

_Noreturn void boot_failed(const char *step, int err)
{
    char text[512];
    int n = snprintf(text, sizeof text, "forkd: boot failed: %s: %s\n", step, strerror(err));
    int fd = open("/dev/console", O_WRONLY | O_NOCTTY);
    if (fd >= 0) {
        (void)!write(fd, text, (size_t)n);
        fsync(fd);
        ioctl(fd, 0x5409 /* TCSBRK */, 1); /* waits until the line is out */
    }
    machine_reset();
}

static void must_mount(const char *source, const char *target, const char *type, unsigned long flags, const char *data)
{
    mkdir(target, 0755);
    if (mount(source, target, type, flags, data) < 0 && errno != EBUSY)
        boot_failed(target, errno);
}

/* Opens descriptors 0-2, so that no other file gets their numbers. */
static void open_stdio(void)
{
    int fd = open("/dev/null", O_RDWR);
    if (fd < 0)
        boot_failed("/dev/null", errno);
    for (int i = 0; i < 3; i++)
        dup2(fd, i);
    if (fd > 2)
        close(fd);
}

static void wait_for(const char *device)
{
    struct timespec step = {.tv_nsec = STEP_MS * 1000000};
    for (int ms = 0; ms < WAIT_MS; ms += STEP_MS) {
        if (access(device, F_OK) == 0)
            return;
        nanosleep(&step, NULL);
    }
    boot_failed(device, ENODEV);
}

static void enter_root(const char *cmdline)
{
    static const char *const move[] = {"/dev", "/proc", "/sys"};
    char type[32] = "ext4", none[8], target[32];
    cmdline_get(cmdline, "forkd.rootfstype", type, sizeof type);
    bool read_only = cmdline_get(cmdline, "forkd.ro", none, sizeof none);
    mkdir("/newroot", 0755);
    wait_for(ROOT_DEVICE);
    /* Without noatime the first read after a fork would write to the disk of every child. */
    if (mount(ROOT_DEVICE, "/newroot", type, MS_NOATIME | (read_only ? MS_RDONLY : 0), NULL) < 0)
        boot_failed("mount " ROOT_DEVICE, errno);
    for (int i = 0; i < 3; i++) {
        snprintf(target, sizeof target, "/newroot%s", move[i]);
        mkdir(target, 0755);
        if (mount(move[i], target, NULL, MS_MOVE, NULL) < 0)
            boot_failed(target, errno);
    }
    if (chdir("/newroot") < 0 || mount(".", "/", NULL, MS_MOVE, NULL) < 0 || chroot(".") < 0 || chdir("/") < 0)
        boot_failed("root", errno);
}

static void mounts(void)
{
    must_mount("devpts", "/dev/pts", "devpts", MS_NOSUID | MS_NOEXEC, "mode=0620,ptmxmode=0666,gid=5");
    must_mount("shm", "/dev/shm", "tmpfs", MS_NOSUID | MS_NODEV, "mode=1777");
    must_mount("run", "/run", "tmpfs", MS_NOSUID | MS_NODEV, "mode=0755");
    must_mount("tmp", "/tmp", "tmpfs", MS_NOSUID | MS_NODEV, "mode=1777");
    mkdir("/run/lock", 01777);
    chmod("/run/lock", 01777);
    /* Without cgroups the guest still works. */
    mount("cgroup2", "/sys/fs/cgroup", "cgroup2", MS_NOSUID | MS_NODEV | MS_NOEXEC, NULL);
    (void)!symlink("/proc/self/fd", "/dev/fd");
    (void)!symlink("/proc/self/fd/0", "/dev/stdin");
    (void)!symlink("/proc/self/fd/1", "/dev/stdout");
    (void)!symlink("/proc/self/fd/2", "/dev/stderr");
}

static void loopback_up(void)
{
    struct ifreq r = {.ifr_name = "lo", .ifr_flags = IFF_UP | IFF_RUNNING};
    int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd < 0 || ioctl(fd, SIOCSIFFLAGS, &r) < 0)
        boot_failed("lo", errno);
    close(fd);
}

void boot_set(const char *path, const char *value)
{
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    if (fd < 0)
        return;
    (void)!write(fd, value, strlen(value));
    close(fd);
}

/*
 * The timer chip (PIT) fires at 18 Hz after reset, and the VMM wakes up each time, although the kernel does
 * not use it once it has another clock. Mode 0 fires once and then stops.
 */
static void stop_pit(void)
{
#if defined(__x86_64__)
    static char device[64];
    if (read_whole("/sys/devices/system/clockevents/clockevent0/current_device", device, sizeof device) < 0 ||
        strncmp(device, "pit", 3) == 0 || ioperm(0x40, 4, 1) < 0)
        return;
    outb(0x30, 0x43);
    outb(1, 0x40);
    outb(0, 0x40);
    ioperm(0x40, 4, 0);
#endif
}

/*
 * Turns off periodic work that wakes an idle kernel twice a second or more. A hundred idle guests share one
 * host, and every wake-up writes to memory that a child could otherwise share with its snapshot.
 */
static void reduce_wakeups(void)
{
    boot_set("/proc/sys/vm/compaction_proactiveness", "0");
    boot_set("/proc/sys/vm/stat_interval", "120");
    stop_pit();
}

void init_boot(void)
{
    static char cmdline[4096];
    umask(022);
    must_mount("dev", "/dev", "devtmpfs", MS_NOSUID, "mode=0755");
    must_mount("proc", "/proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC, NULL);
    must_mount("sys", "/sys", "sysfs", MS_NOSUID | MS_NODEV | MS_NOEXEC, NULL);
    open_stdio();
    if (read_whole("/proc/cmdline", cmdline, sizeof cmdline) < 0)
        boot_failed("/proc/cmdline", errno);
    modules_load(cmdline);
    bundle_open();
    enter_root(cmdline);
    mounts();
    loopback_up();
    reduce_wakeups();
    identity_prepare();
    bundle_publish();
    interface_prepare();
    connections_prepare();
    after_fork_prepare();
    /* The OOM killer must not choose the agent; commands get the usual value. */
    boot_set("/proc/self/oom_score_adj", "-1000");
}
