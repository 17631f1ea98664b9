/*
 * The system calls that the program may make, as a seccomp filter in classic BPF. It lists what a VMM does not
 * need: the calls that reach other processes, other namespaces or rarely used parts of the kernel.
 *
 * Refused calls fail like on a kernel that lacks them, so that libraries use their fallbacks. The kernel
 * remembers which calls are allowed whatever their arguments, so the length of the list costs nothing.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <linux/userfaultfd.h>
#include <netinet/in.h>
#include <sched.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "launch.h"

#ifndef USERFAULTFD_IOC_NEW
#define USERFAULTFD_IOC_NEW _IO(UFFDIO, 0)
#endif

#if defined(__x86_64__)
#define NATIVE_ARCH AUDIT_ARCH_X86_64
#elif defined(__aarch64__)
#define NATIVE_ARCH AUDIT_ARCH_AARCH64
#else
#error "This architecture has no system call filter yet."
#endif

#define X32_BIT 0x40000000u
#define CODE_MAX 1024
#define ALLOW SECCOMP_RET_ALLOW
#define KILL SECCOMP_RET_KILL_PROCESS
#define REFUSE(err) (SECCOMP_RET_ERRNO | (err))

#define NAMESPACE_FLAGS                                                                                               \
    (CLONE_NEWNS | CLONE_NEWCGROUP | CLONE_NEWUTS | CLONE_NEWIPC | CLONE_NEWUSER | CLONE_NEWPID | CLONE_NEWNET)

static int refused[] = {
#include "refused.h"
};

#define REFUSED (sizeof refused / sizeof *refused)
#define GROUP 12

static struct sock_filter code[CODE_MAX];
static unsigned short used;

static void emit(struct sock_filter instruction)
{
    if (used == CODE_MAX)
        abort();
    code[used++] = instruction;
}

static void load(size_t offset) { emit((struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, (uint32_t)offset)); }

static void load_number(void) { load(offsetof(struct seccomp_data, nr)); }

/* The low half: the kernel uses these arguments as 32-bit numbers. Both architectures are little-endian. */
static void load_argument(int index) { load(offsetof(struct seccomp_data, args) + (size_t)index * 8); }

static void result(uint32_t value) { emit((struct sock_filter)BPF_STMT(BPF_RET | BPF_K, value)); }

static void result_if(uint32_t equal, uint32_t value)
{
    emit((struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, equal, 0, 1));
    result(value);
}

static void result_if_any(uint32_t bits, uint32_t value)
{
    emit((struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, bits, 0, 1));
    result(value);
}

/* Instructions from here to block_end() are for one system call, and end with a result. */
static unsigned short block(int number)
{
    unsigned short at = used;
    emit((struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (uint32_t)number, 0, 0));
    return at;
}

static void block_end(unsigned short at)
{
    if (used - at - 1 > 255)
        abort();
    code[at].jf = (uint8_t)(used - at - 1);
}

/* Allows a call only if the argument is this process. */
static void only_self(int number, int argument, bool zero)
{
    unsigned short at = block(number);
    load_argument(argument);
    result_if((uint32_t)getpid(), ALLOW);
    if (zero)
        result_if(0, ALLOW);
    result(REFUSE(EPERM));
    block_end(at);
}

static void check_ioctl(void)
{
    /* Types into the terminal of the caller; sends signals to other processes. */
    static const uint32_t bad[] = {TIOCSTI, 0x541C /* TIOCLINUX */, 0x8901 /* FIOSETOWN */, 0x8902 /* SIOCSPGRP */};
    unsigned short at = block(__NR_ioctl);
    load_argument(1);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        result_if(bad[i], REFUSE(EPERM));
    /* Of userfaultfd, what the preloaded library needs: a descriptor that waits for no fault of the kernel. */
    result_if(UFFDIO_API, ALLOW);
    emit((struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, USERFAULTFD_IOC_NEW, 0, 4));
    load_argument(2);
    result_if(O_CLOEXEC | O_NONBLOCK | UFFD_USER_MODE_ONLY, ALLOW);
    result(REFUSE(EPERM));
    emit((struct sock_filter)BPF_STMT(BPF_ALU | BPF_AND | BPF_K, 0xff00));
    result_if(UFFDIO << 8, REFUSE(EPERM));
    result(ALLOW);
    block_end(at);
}

static void check_fcntl(void)
{
    static const uint32_t bad[] = {F_SETOWN, F_SETOWN_EX, F_SETSIG};
    unsigned short at = block(__NR_fcntl);
    load_argument(1);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        result_if(bad[i], REFUSE(EPERM));
    result(ALLOW);
    block_end(at);
}

/* Threads, but no processes and no namespaces. */
static void check_clone(void)
{
    unsigned short at = block(__NR_clone);
    load_argument(0);
    result_if_any(NAMESPACE_FLAGS, REFUSE(EPERM));
    result_if_any(CLONE_THREAD, ALLOW);
    result(REFUSE(EPERM));
    block_end(at);
    at = block(__NR_clone3);
    /* Its flags are in memory, where the filter cannot look. The C library then uses clone. */
    result(REFUSE(ENOSYS));
    block_end(at);
}

/* Vsock and netlink sockets do not stay in the network namespace, or reach much of the kernel. */
static void check_socket(int number, bool inet)
{
    unsigned short at = block(number);
    load_argument(0);
    result_if(AF_UNIX, ALLOW);
    if (inet) {
        emit((struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, AF_INET, 1, 0));
        result(REFUSE(EAFNOSUPPORT));
        load_argument(2);
        result_if(0, ALLOW); /* raw sockets need a protocol */
        result_if(IPPROTO_TCP, ALLOW);
        result_if(IPPROTO_UDP, ALLOW);
    }
    result(REFUSE(EAFNOSUPPORT));
    block_end(at);
}

static void check_personality(void)
{
    unsigned short at = block(__NR_personality);
    load_argument(0);
    result_if(0xffffffff, ALLOW); /* asks for the current one */
    result(REFUSE(EPERM));
    block_end(at);
}

static int by_number(const void *a, const void *b) { return *(const int *)a - *(const int *)b; }

/* In groups that are skipped as a whole: the kernel runs the filter once for each call to find what is allowed. */
static void refuse_list(void)
{
    qsort(refused, REFUSED, sizeof *refused, by_number);
    for (size_t first = 0; first < REFUSED; first += GROUP) {
        size_t count = REFUSED - first < GROUP ? REFUSED - first : GROUP;
        uint32_t last = (uint32_t)refused[first + count - 1];
        emit((struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JGT | BPF_K, last, (uint8_t)(2 * count), 0));
        for (size_t i = 0; i < count; i++)
            result_if((uint32_t)refused[first + i], REFUSE(EPERM));
    }
}

static void build(bool inet)
{
    load(offsetof(struct seccomp_data, arch));
    emit((struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, NATIVE_ARCH, 1, 0));
    result(KILL);
    load_number();
#if defined(__x86_64__)
    emit((struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JGE | BPF_K, X32_BIT, 0, 1));
    result(KILL);
#endif
    check_ioctl(); /* first: virtual CPUs make this call all the time */
    check_fcntl();
    check_clone();
    check_socket(__NR_socket, inet);
    check_socket(__NR_socketpair, false);
    check_personality();
    only_self(__NR_kill, 0, false);
    only_self(__NR_tgkill, 0, false);
    only_self(__NR_rt_sigqueueinfo, 0, false);
    only_self(__NR_rt_tgsigqueueinfo, 0, false);
    only_self(__NR_prlimit64, 0, true);
    refuse_list();
    result(ALLOW);
}

void filter_install(bool inet)
{
    build(inet);
    struct sock_fprog program = {used, code};
    /* Without this flag, older kernels slow down every filtered process against attacks on itself. */
    if (syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_SPEC_ALLOW, &program) < 0)
        fail("filter");
}
