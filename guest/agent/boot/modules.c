/*
 * Kernel modules of the initramfs. The kernel applies `name.param=value` of its command line only to built-in
 * code, so this file passes them to finit_module. Microvm declares its devices that way
 * (virtio_mmio.device=…).
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "util.h"
#include "boot/boot.h"

#define LINE_MAX_ 4096

/* In names of modules and parameters, the kernel treats - and _ as equal. */
static bool same_name(const char *a, const char *b, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (a[i] != b[i] && !((a[i] == '-' || a[i] == '_') && (b[i] == '-' || b[i] == '_')))
            return false;
    return true;
}

/* Parameters of one module in the order of the command line, separated by spaces. */
static void parameters(const char *cmdline, const char *module, size_t len, char *dst, size_t size)
{
    size_t n = 0;
    dst[0] = 0;
    for (const char *p = cmdline; *p;) {
        p += strspn(p, " \n");
        size_t word = strcspn(p, " \n");
        if (word > len + 1 && p[len] == '.' && same_name(p, module, len) && n + word - len < size) {
            if (n)
                dst[n++] = ' ';
            memcpy(dst + n, p + len + 1, word - len - 1);
            n += word - len - 1;
            dst[n] = 0;
        }
        p += word;
    }
}

bool cmdline_get(const char *cmdline, const char *key, char *dst, size_t size)
{
    size_t len = strlen(key);
    for (const char *p = cmdline; *p;) {
        p += strspn(p, " \n");
        size_t word = strcspn(p, " \n");
        if (word >= len && memcmp(p, key, len) == 0 && (word == len || p[len] == '=')) {
            size_t n = word > len ? word - len - 1 : 0;
            if (n >= size)
                n = size - 1;
            memcpy(dst, p + word - (word > len ? word - len - 1 : 0), n);
            dst[n] = 0;
            return true;
        }
        p += word;
    }
    return false;
}

static void load(const char *file, const char *cmdline)
{
    char path[256], args[LINE_MAX_];
    const char *name = strrchr(file, '/') ? strrchr(file, '/') + 1 : file;
    parameters(cmdline, name, strcspn(name, "."), args, sizeof args);
    snprintf(path, sizeof path, "/modules/%s", file);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        boot_failed(path, errno);
    if (syscall(SYS_finit_module, fd, args, 0) < 0 && errno != EEXIST)
        boot_failed(path, errno);
    close(fd);
}

void modules_load(const char *cmdline)
{
    static char list[LINE_MAX_];
    if (read_whole("/modules/load", list, sizeof list) < 0) {
        if (errno == ENOENT)
            return; /* a kernel with everything built in */
        boot_failed("/modules/load", errno);
    }
    char *rest = list, *line;
    while ((line = strsep(&rest, "\n"))) {
        line[strcspn(line, " \t\r")] = 0;
        if (*line && *line != '#')
            load(line, cmdline);
    }
}
