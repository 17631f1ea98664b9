/*
 * Plays a VMM that an attacker has taken over: tries everything that the jail must refuse and prints one JSON
 * object, with "yes" or the name of the error for each attempt.
 *
 * test-probe all NAME=VALUE...   names: machine (directory), memory, inherited (descriptor), stranger and twin
 *                                (pids with another and the same user), port (of the host's loopback), secrets (files,
 *                                separated by colons), library (a file to read), limit (bytes)
 * test-probe x32|int80           makes one call of another system call table
 * test-probe sleep               waits to be attacked, until its stdin closes
 */
#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/if_packet.h>
#include <linux/io_uring.h>
#include <linux/perf_event.h>
#include <linux/vm_sockets.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <linux/capability.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/personality.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/shm.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <unistd.h>

static int arguments;
static char **argument;
static const char *comma = "{";

static const char *value_of(const char *name)
{
    size_t length = strlen(name);
    for (int i = 0; i < arguments; i++)
        if (strncmp(argument[i], name, length) == 0 && argument[i][length] == '=')
            return argument[i] + length + 1;
    return NULL;
}

static int number_of(const char *name)
{
    const char *value = value_of(name);
    return value ? atoi(value) : -1;
}

static void say(const char *name, const char *value)
{
    printf("%s\n\"%s\":\"%s\"", comma, name, value);
    comma = ",";
}

static void say_number(const char *name, long value)
{
    printf("%s\n\"%s\":%ld", comma, name, value);
    comma = ",";
}

/* A call that returned -1 failed. Its effect, if any, is not undone. */
static void tried(const char *name, long result) { say(name, result >= 0 ? "yes" : strerrorname_np(errno)); }

static void tried_open(const char *name, const char *path, int flags)
{
    int fd = open(path, flags | O_CLOEXEC | O_NONBLOCK, 0600);
    tried(name, fd);
    if (fd >= 0)
        close(fd);
}

static void tried_socket(const char *name, int family, int type, int protocol)
{
    int fd = socket(family, type, protocol);
    tried(name, fd);
    if (fd >= 0)
        close(fd);
}

static const char *in_machine(const char *file)
{
    static char path[4096];
    snprintf(path, sizeof path, "%s/%s", value_of("machine"), file);
    return path;
}

static void try_reading(void)
{
    tried_open("read shadow file", "/etc/shadow", O_RDONLY);
    char *rest = NULL, *copy = strdup(value_of("secrets"));
    int readable = 0;
    for (char *path = strtok_r(copy, ":", &rest); path; path = strtok_r(NULL, ":", &rest)) {
        int fd = open(path, O_RDONLY | O_CLOEXEC);
        readable += fd >= 0;
    }
    say_number("readable secrets", readable);
    free(copy);
    static const char *const directories[] = {"/etc", "/proc", "/sys", "/home", "/dev"};
    for (size_t i = 0; i < sizeof directories / sizeof *directories; i++) {
        char name[64];
        snprintf(name, sizeof name, "list %s", directories[i]);
        DIR *directory = opendir(directories[i]);
        tried(name, directory ? 0 : -1);
        if (directory)
            closedir(directory);
    }
    tried_open("open a parent of the root", "/../etc/passwd", O_RDONLY);
    tried_open("open /dev/net/tun", "/dev/net/tun", O_RDWR);
    tried_open("open /dev/kvm", "/dev/kvm", O_RDWR);
    say("find a shell", access("/bin/sh", X_OK) == 0 ? "yes" : strerrorname_np(errno));
    struct utsname names;
    uname(&names);
    say("host name", names.nodename);
}

/* The descriptors that are open, as a list. */
static void list_descriptors(void)
{
    char list[1024] = "";
    for (int fd = 0; fd < 1024; fd++)
        if (fcntl(fd, F_GETFD) >= 0)
            snprintf(list + strlen(list), sizeof list - strlen(list), "%s%d", *list ? "," : "", fd);
    say("descriptors", list);
}

static void try_memory(void)
{
    const char *path = value_of("memory");
    int inherited = number_of("inherited");
    char again[64], byte = 'x';
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    tried("memory: read", fd);
    void *private = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 0);
    tried("memory: map privately", private == MAP_FAILED ? -1 : 0);
    tried_open("memory: open for writing", path, O_RDWR);
    tried("memory: truncate", truncate(path, 4096));
    tried("memory: change the mode", chmod(path, 0666));
    void *shared = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    tried("memory: map shared", shared == MAP_FAILED ? -1 : 0);
    snprintf(again, sizeof again, "/proc/self/fd/%d", fd);
    tried_open("memory: open again for writing", again, O_RDWR);
    tried("memory: write to the inherited descriptor", pwrite(inherited, &byte, 1, 0));
    snprintf(again, sizeof again, "/proc/self/fd/%d", inherited);
    tried_open("memory: open the inherited descriptor again", again, O_RDWR);
    tried("memory: link", link(path, in_machine("linked")));
}

static int connect_to(const char *address, uint16_t port)
{
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(port)};
    struct timeval second = {.tv_sec = 1};
    to.sin_addr.s_addr = inet_addr(address);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return -1;
    setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &second, sizeof second);
    int result = connect(fd, (struct sockaddr *)&to, sizeof to);
    int err = errno;
    close(fd);
    errno = err;
    return result;
}

static void try_network(void)
{
    tried("connect to the host's loopback", connect_to("127.0.0.1", (uint16_t)number_of("port")));
    tried("connect to metadata", connect_to("169.254.169.254", 80));
    tried_socket("socket: unix", AF_UNIX, SOCK_STREAM, 0);
    tried_socket("socket: inet", AF_INET, SOCK_STREAM, 0);
    tried_socket("socket: inet6", AF_INET6, SOCK_STREAM, 0);
    tried_socket("socket: raw", AF_INET, SOCK_RAW, IPPROTO_ICMP);
    tried_socket("socket: raw without protocol", AF_INET, SOCK_RAW, 0);
    tried_socket("socket: packet", AF_PACKET, SOCK_RAW, 0);
    tried_socket("socket: vsock", AF_VSOCK, SOCK_STREAM, 0);
    tried_socket("socket: netlink", AF_NETLINK, SOCK_RAW, 0);
    tried_socket("socket: alg", AF_ALG, SOCK_SEQPACKET, 0);
    tried_socket("socket: mptcp", AF_INET, SOCK_STREAM, 262);
}

static void try_other_process(const char *who, pid_t pid)
{
    char name[96], path[64], buffer[8];
    struct iovec local = {buffer, sizeof buffer}, remote = {(void *)0x400000, sizeof buffer};
    siginfo_t info = {.si_code = SI_QUEUE};
#define TRY(what, call)                                                                                               \
    do {                                                                                                              \
        long result = call;                                                                                           \
        snprintf(name, sizeof name, "%s: %s", who, what);                                                             \
        tried(name, result);                                                                                          \
    } while (0)
    TRY("signal", kill(pid, 0));
    TRY("signal a thread", syscall(SYS_tgkill, pid, pid, 0));
    TRY("tkill", syscall(SYS_tkill, pid, 0));
    TRY("queue a signal", syscall(SYS_rt_sigqueueinfo, pid, 0, &info));
    TRY("pidfd", syscall(SYS_pidfd_open, pid, 0));
    TRY("read memory", process_vm_readv(pid, &local, 1, &remote, 1, 0));
    TRY("write memory", process_vm_writev(pid, &local, 1, &remote, 1, 0));
    TRY("kcmp", syscall(SYS_kcmp, getpid(), pid, 0, 0, 0));
    TRY("change limits", syscall(SYS_prlimit64, pid, RLIMIT_CORE, &(struct rlimit){0}, NULL));
    TRY("change priority", setpriority(PRIO_PROCESS, (id_t)pid, 19));
    TRY("receive a file's signals", fcntl(STDIN_FILENO, F_SETOWN, pid));
    snprintf(name, sizeof name, "%s: open memory", who);
    snprintf(path, sizeof path, "/proc/%d/mem", pid);
    tried_open(name, path, O_RDWR);
    TRY("trace", ptrace(PTRACE_SEIZE, pid, NULL, NULL));
#undef TRY
}

static int nothing(void *unused)
{
    (void)unused;
    return 0;
}

/* Returns like clone(); the child exits. */
static int new_process(int flags)
{
    static char stack[16384] __attribute__((aligned(16)));
    int pid = clone(nothing, stack + sizeof stack, flags | SIGCHLD, NULL);
    if (pid > 0)
        waitpid(pid, NULL, 0);
    return pid;
}

static void try_namespaces(void)
{
    struct {
        uint64_t flags, rest[10];
    } arguments3 = {.flags = CLONE_NEWUSER};
    tried("new process", new_process(0));
    tried("new process in a user namespace", new_process(CLONE_NEWUSER));
    long pid = syscall(SYS_clone3, &arguments3, sizeof arguments3);
    if (pid == 0)
        _exit(0);
    tried("clone3", pid);
    tried("signal its process group", kill(0, 0));
    tried("signal all processes", kill(-1, 0));
    tried("signal itself", kill(getpid(), 0));
    tried("mount", mount("x", "/", "tmpfs", 0, NULL));
    tried("make the root writable", mount(NULL, "/", NULL, MS_REMOUNT | MS_BIND, NULL));
    tried("unmount", umount2("/", MNT_DETACH));
    tried("chroot", chroot("."));
    tried("setns", syscall(SYS_setns, STDIN_FILENO, CLONE_NEWNET));
    tried("fsopen", syscall(SYS_fsopen, "tmpfs", 0));
    tried("open_tree", syscall(SYS_open_tree, AT_FDCWD, "/", 0));
    tried("unshare", unshare(CLONE_NEWUSER));
}

static void try_privileges(void)
{
    tried("become root", setresuid(0, 0, 0));
    tried("become the root group", setresgid(0, 0, 0));
    tried("change groups", syscall(SYS_setgroups, 0, NULL));
    struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct data[2] = {{0}};
    syscall(SYS_capget, &header, data);
    bool any = false;
    for (int i = 0; i < 2; i++)
        any |= data[i].effective || data[i].permitted || data[i].inheritable;
    /* With capabilities, the attempts below could harm the host. */
    if (any)
        exit(3);
    say("capabilities", any ? "some" : "none");
    int bounding = 0;
    for (int i = 0; i < 64; i++)
        bounding += prctl(PR_CAPBSET_READ, i, 0, 0, 0) == 1;
    say("bounding set", bounding ? "some" : "empty");
    say_number("no_new_privs", prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0));
    say_number("uid", getuid());
    say_number("gid", getgid());
}

static void try_kernel(void)
{
    struct io_uring_params ring = {0};
    struct perf_event_attr event = {.type = PERF_TYPE_SOFTWARE, .size = sizeof event, .exclude_kernel = 1};
    char attributes[128] = {0};
    struct {
        struct file_handle handle;
        char rest[128];
    } handle = {.handle = {.handle_bytes = 128}};
    int mount_id;
    tried("io_uring", syscall(SYS_io_uring_setup, 1, &ring));
    tried("bpf", syscall(SYS_bpf, 0, attributes, sizeof attributes));
    tried("perf", syscall(SYS_perf_event_open, &event, 0, -1, -1, 0));
    tried("userfaultfd", syscall(SYS_userfaultfd, O_CLOEXEC | 1));
    tried("keyring", syscall(SYS_keyctl, 0, -2, 1));
    tried("add a key", syscall(SYS_add_key, "user", "x", "x", 1, -2));
    tried("file handle", name_to_handle_at(AT_FDCWD, "/", &handle.handle, &mount_id, 0));
    tried("personality", personality(ADDR_NO_RANDOMIZE));
    int segment = shmget(IPC_PRIVATE, 4096, 0600);
    tried("shared memory", segment);
    if (segment >= 0)
        shmctl(segment, IPC_RMID, NULL);
    tried("set the clock", syscall(SYS_clock_settime, 0, &(struct timespec){.tv_nsec = -1}));
    tried("kernel module", syscall(SYS_finit_module, 0, "", 0));
    tried("kernel log", syscall(SYS_syslog, 10, NULL, 0));
    tried("reboot", syscall(SYS_reboot, 0, 0, 0, NULL));
    tried("host name change", sethostname("x", 1));
    errno = 0;
    say("type into a terminal", ioctl(STDIN_FILENO, TIOCSTI, "x") == 0 ? "yes" : strerrorname_np(errno));
#if defined(__x86_64__)
    tried("iopl", syscall(SYS_iopl, 3));
    tried("modify_ldt", syscall(SYS_modify_ldt, 0, attributes, 0));
#endif
}

static void try_files(void)
{
    char byte = 'x', renamed[4096];
    tried_open("write to the root", "/planted", O_CREAT | O_WRONLY);
    tried_open("write to /tmp", "/tmp/planted-by-test-probe", O_CREAT | O_WRONLY);
    unlink("/tmp/planted-by-test-probe");
    tried_open("write a library", value_of("library"), O_WRONLY);
    tried_open("machine: write its disk", in_machine("disk"), O_RDWR);
    int disk = open(in_machine("disk"), O_RDWR | O_CLOEXEC);
    tried("machine: write up to the limit", pwrite(disk, &byte, 1, number_of("limit") - 1));
    tried("machine: write beyond the limit", pwrite(disk, &byte, 1, number_of("limit")));
    tried_open("machine: create a file", in_machine("planted"), O_CREAT | O_WRONLY);
    tried("machine: create a directory", mkdir(in_machine("planted-directory"), 0700));
    tried("machine: create a symbolic link", symlink("/etc/shadow", in_machine("planted-link")));
    tried("machine: create a device", mknod(in_machine("planted-device"), S_IFCHR | 0600, 0x103));
    tried("machine: create a FIFO", mknod(in_machine("planted-fifo"), S_IFIFO | 0600, 0));
    snprintf(renamed, sizeof renamed, "%s", in_machine("renamed"));
    tried("machine: rename its disk", rename(in_machine("disk"), renamed));
    rename(renamed, in_machine("disk"));
    tried("machine: give its disk away", chown(in_machine("disk"), 0, 0));
    tried("machine: make its disk executable", chmod(in_machine("disk"), 0700));
    void *code = mmap(NULL, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE, disk, 0);
    tried("machine: run code from its disk", code == MAP_FAILED ? -1 : 0);
    /* Would be the last row if it worked. */
    char *const none[] = {NULL};
    tried("machine: execute its disk", execve(in_machine("disk"), none, none));
    tried("execute a descriptor", syscall(SYS_execveat, disk, "", none, none, AT_EMPTY_PATH));
    struct rlimit limit;
    getrlimit(RLIMIT_CORE, &limit);
    say_number("core limit", (long)limit.rlim_max);
    getrlimit(RLIMIT_NOFILE, &limit);
    say_number("file limit", (long)limit.rlim_max);
}

static pthread_mutex_t held = PTHREAD_MUTEX_INITIALIZER;

static void *wait_for_end(void *unused)
{
    pthread_mutex_lock(&held);
    pthread_mutex_unlock(&held);
    return unused;
}

#define THREADS_MAX 200

static void try_threads(void)
{
    pthread_t threads[THREADS_MAX];
    pthread_attr_t small;
    int count = 0;
    pthread_attr_init(&small);
    pthread_attr_setstacksize(&small, 65536);
    pthread_mutex_lock(&held);
    while (count < THREADS_MAX && pthread_create(&threads[count], &small, wait_for_end, NULL) == 0)
        count++;
    pthread_mutex_unlock(&held);
    for (int i = 0; i < count; i++)
        pthread_join(threads[i], NULL);
    say_number("threads", count + 1);
}

static int other_table(const char *which)
{
#if defined(__x86_64__)
    long result = 0;
    if (strcmp(which, "x32") == 0)
        result = syscall(0x40000000 | SYS_getpid);
    else
        __asm__ volatile("int $0x80" : "=a"(result) : "a"(20) : "memory");
    printf("%s returned %ld\n", which, result);
#else
    (void)which;
#endif
    return 0;
}

int main(int argc, char **argv)
{
    const char *what = argc > 1 ? argv[1] : "";
    if (strcmp(what, "x32") == 0 || strcmp(what, "int80") == 0)
        return other_table(what);
    if (strcmp(what, "sleep") == 0) {
        char byte;
        printf("ready\n");
        fflush(stdout);
        return read(STDIN_FILENO, &byte, 1) < 0;
    }
    if (strcmp(what, "all") != 0)
        return 2;
    alarm(60);
    arguments = argc - 2;
    argument = argv + 2;
    list_descriptors();
    try_privileges();
    try_reading();
    try_memory();
    try_network();
    try_other_process("stranger", number_of("stranger"));
    try_other_process("twin", number_of("twin"));
    try_kernel();
    try_files();
    try_threads();
    try_namespaces();
    printf("\n}\n");
    return 0;
}
