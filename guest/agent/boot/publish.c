/*
 * Files that the guest gets at boot: each is in /run/forkd and takes the place of a file of the image. An image
 * in which that is not possible works without it.
 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <unistd.h>

#include "util.h"
#include "boot/boot.h"

#define BUNDLE_GIVEN "/ca-bundle.pem"
#define BUNDLE "/run/forkd/ca-bundle.pem"

static int bundle_fd = -1;

static bool create(const char *path)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC | O_NOCTTY, 0644);
    if (fd < 0)
        return false;
    close(fd);
    return true;
}

/*
 * Makes a missing file. A link often leads to a file that a service writes, usually below /run, so its directory
 * is made, too. A link that leads nowhere is replaced.
 */
static void make_place(const char *place)
{
    char to[PATH_MAX], path[2 * PATH_MAX];
    ssize_t n = readlink(place, to, sizeof to - 1);
    if (n > 0) {
        to[n] = 0;
        int directory = to[0] == '/' ? 0 : (int)(strrchr(place, '/') + 1 - place);
        snprintf(path, sizeof path, "%.*s%s", directory, place, to);
        make_parents(path, 0755);
        if (create(place) || unlink(place) < 0)
            return;
    }
    create(place);
}

void publish_over(const char *file, const char *place, const char *text, size_t n)
{
    int fd = open(file, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    if (fd < 0 || write_all(fd, text, n) < 0)
        boot_failed(file, errno);
    close(fd);
    make_place(place);
    mount(file, place, NULL, MS_BIND, NULL);
}

void bundle_open(void)
{
    bundle_fd = open(BUNDLE_GIVEN, O_RDONLY | O_CLOEXEC);
    unlink(BUNDLE_GIVEN); /* returns its memory when the descriptor is closed */
}

/*
 * A link, because a tool that installs certificates renames its new bundle to this name, which is not possible
 * over a mount. On a read-only root nothing is installed, so there a mount works.
 */
static void replace_with_bundle(const char *place)
{
    char temporary[PATH_MAX];
    snprintf(temporary, sizeof temporary, "%s.forkd", place);
    if (symlink(BUNDLE, temporary) == 0 && rename(temporary, place) == 0)
        return;
    unlink(temporary);
    mount(BUNDLE, place, NULL, MS_BIND, NULL);
}

void bundle_publish(void)
{
    /* The first is the place in Debian and Alpine, and where most programs look. */
    static const char *const places[] = {
        "/etc/ssl/certs/ca-certificates.crt",
        "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",
        "/etc/ssl/ca-bundle.pem",
        "/etc/ssl/cert.pem",
    };
    /* The tools of Debian and Alpine add this to each bundle that they make. */
    static const char local[] = "/usr/local/share/ca-certificates/forkd.crt";
    struct stat st;
    if (bundle_fd < 0)
        return;
    int fd = open(BUNDLE, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    ssize_t n = -1;
    while (fd >= 0 && (n = sendfile(fd, bundle_fd, NULL, 1 << 20)) > 0)
        ;
    if (n < 0)
        boot_failed(BUNDLE, errno);
    close(fd);
    close(bundle_fd);
    make_parents(places[0], 0755);
    replace_with_bundle(places[0]);
    for (size_t i = 1; i < sizeof places / sizeof places[0]; i++)
        if (lstat(places[i], &st) == 0 && S_ISREG(st.st_mode))
            replace_with_bundle(places[i]);
    make_parents(local, 0755);
    (void)!symlink(BUNDLE, local);
}
