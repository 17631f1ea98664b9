/*
 * Plays an older kernel: executes a program with some system calls missing.
 *
 * test-without open_tree|close_range|landlock|nftables... -- PROGRAM ARGS...
 */
#include <errno.h>
#include <linux/filter.h>
#include <linux/netlink.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

static struct sock_filter code[64];
static unsigned short used;

static void emit(uint16_t op, uint32_t value, uint8_t yes, uint8_t no)
{
    code[used++] = (struct sock_filter){op, yes, no, value};
}

static void load(size_t offset) { emit(BPF_LD | BPF_W | BPF_ABS, (uint32_t)offset, 0, 0); }

static void missing(uint32_t number)
{
    emit(BPF_JMP | BPF_JEQ | BPF_K, number, 0, 1);
    emit(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | ENOSYS, 0, 0);
}

static void missing_nftables(void)
{
    emit(BPF_JMP | BPF_JEQ | BPF_K, SYS_socket, 0, 6);
    load(offsetof(struct seccomp_data, args));
    emit(BPF_JMP | BPF_JEQ | BPF_K, AF_NETLINK, 0, 3);
    load(offsetof(struct seccomp_data, args) + 16);
    emit(BPF_JMP | BPF_JEQ | BPF_K, NETLINK_NETFILTER, 0, 1);
    emit(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPROTONOSUPPORT, 0, 0);
    load(offsetof(struct seccomp_data, nr));
}

int main(int argc, char **argv)
{
    int i = 1;
    load(offsetof(struct seccomp_data, nr));
    for (; i < argc && strcmp(argv[i], "--") != 0; i++) {
        if (strcmp(argv[i], "open_tree") == 0)
            missing(SYS_open_tree);
        else if (strcmp(argv[i], "close_range") == 0)
            missing(SYS_close_range);
        else if (strcmp(argv[i], "landlock") == 0)
            missing(444); /* landlock_create_ruleset on all architectures */
        else if (strcmp(argv[i], "nftables") == 0)
            missing_nftables();
    }
    emit(BPF_RET | BPF_K, SECCOMP_RET_ALLOW, 0, 0);
    struct sock_fprog program = {used, code};
    if (i + 1 >= argc || prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 ||
        prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) < 0)
        return 2;
    execv(argv[i + 1], argv + i + 1);
    perror(argv[i + 1]);
    return 2;
}
