/* What the program keeps: its files, its limits, and no privileges. */
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <linux/capability.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "launch.h"

void files_own(const struct options *options, uid_t uid)
{
    for (size_t i = 0; i < options->own_count; i++) {
        const char *path = options->own[i];
        struct stat status;
        /* Without O_NONBLOCK, opening a FIFO would wait. */
        int fd = open(path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
        if (fd < 0 || fstat(fd, &status) < 0)
            fail("own %s", path);
        /* With a second name, this could be a file that is not the machine's. */
        if (!S_ISREG(status.st_mode) || status.st_nlink != 1)
            refuse("own %s: not a regular file with one name", path);
        if (fchown(fd, uid, uid) < 0 || fchmod(fd, 0600) < 0)
            fail("own %s", path);
        close(fd);
    }
}

/* The OOM killer should choose a machine before the daemon. A higher value of the host stays. */
void oom_score_raise(void)
{
    int fd = open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC);
    if (fd < 0)
        return;
    ssize_t ignored = write(fd, "500", 3);
    (void)ignored;
    close(fd);
}

void huge_pages_refuse(void)
{
    /* Kept by exec. A kernel without huge pages has nothing to refuse. */
    (void)prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0);
}

static void limit(const char *name, int resource, uint64_t value)
{
    struct rlimit now;
    if (value == UNLIMITED)
        return;
    if (getrlimit(resource, &now) < 0)
        fail("limit %s", name);
    /* A stricter limit of the host stays. */
    rlim_t max = now.rlim_max == RLIM_INFINITY || value < now.rlim_max ? value : now.rlim_max;
    struct rlimit wanted = {max, max};
    if (setrlimit(resource, &wanted) < 0)
        fail("limit %s", name);
}

void limits_set(const struct options *options)
{
    limit("core", RLIMIT_CORE, 0);
    limit("file", RLIMIT_FSIZE, options->file_bytes);
    limit("files", RLIMIT_NOFILE, options->files);
    /* Without its own namespace or user, this would count everything that the user runs. */
    if (options->variant != VARIANT_NONE)
        limit("threads", RLIMIT_NPROC, options->threads);
    /* A write beyond the limit then fails and the guest sees an I/O error; the default kills the VMM. */
    signal(SIGXFSZ, SIG_IGN);
}

static void drop_bounding_set(enum variant variant)
{
    for (unsigned long each = 0; each < 64; each++) {
        if (prctl(PR_CAPBSET_DROP, each, 0, 0, 0) == 0)
            continue;
        if (errno == EINVAL) /* after the last one */
            return;
        if (variant != VARIANT_NONE)
            fail("bounding set");
        return; /* an ordinary user has no capabilities to lose */
    }
}

void privileges_drop(const struct options *options, uid_t uid)
{
    struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct none[2] = {{0}};
    drop_bounding_set(options->variant);
    /* Linux before 4.3 has no ambient set. */
    if (prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0) < 0 && errno != EINVAL)
        fail("ambient set");
    if (options->variant == VARIANT_ROOT) {
        if (setgroups(options->group_count, options->groups) < 0)
            fail("groups");
        if (setresgid(uid, uid, uid) < 0 || setresuid(uid, uid, uid) < 0)
            fail("user %u", uid);
    }
    if (syscall(SYS_capset, &header, none) < 0)
        fail("capabilities");
    umask(077);
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
        fail("no_new_privs");
}
