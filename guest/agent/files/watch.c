/*
 * Watches a directory with inotify and writes one record for each change. The protocol defines the layout.
 *
 * A new directory is watched first and read afterwards, so that nothing in it is missed. An entry that is
 * created in between is found twice: `found` remembers what the reading reported until the events that were
 * queued by then have been handled.
 *
 * A slow reader blocks the writes to descriptor 1. The kernel's queue then overflows, which is an event.
 */
#include "files/watch.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "util.h"
#include "files/builtin.h"

#define EVENTS (IN_CREATE | IN_DELETE | IN_MODIFY | IN_ATTRIB | IN_MOVED_FROM | IN_MOVED_TO | IN_DELETE_SELF | IN_MOVE_SELF)
#define OUT 65536
#define RECORD_MAX (1 + 3 * 2 + 2 * PATH_MAX + STAT_MAX)
#define FOUND_MAX 4096
#define MOVE_MS 10 /* both halves of a rename come from one system call */

enum change { STARTED = 's', CREATE = 'c', WRITE = 'w', REMOVE = 'd', RENAME = 'm', CHMOD = 'a', OVERFLOW = 'o', SYNCED = 'y' };

struct found {
    int wd;
    uint64_t until;
    char *name;
};

static const struct start *request;
static int fd;
static struct node *root;
static uint8_t out[OUT + RECORD_MAX];
static size_t out_len;
static uint64_t bytes_read, position; /* of the event stream */
static struct found found[FOUND_MAX];
static unsigned found_count;
static uint32_t from_cookie;
static char from_path[PATH_MAX];
static bool failed, quiet;

static void flush(void)
{
    if (out_len > 0 && write_all(1, out, out_len) < 0)
        failed = true;
    out_len = 0;
}

static uint8_t *put(uint8_t *p, const void *bytes, size_t n)
{
    put_u16(p, (uint16_t)n);
    memcpy(p + 2, bytes, n);
    return p + 2 + n;
}

static bool absolute(const char *path, char *dst)
{
    if (*path)
        return join_path(dst, PATH_MAX, request->path, path);
    return text_copy(dst, PATH_MAX, request->path) > 0;
}

static void emit(enum change change, const char *path, const char *from)
{
    static uint8_t record[STAT_MAX];
    char full[PATH_MAX];
    struct stat st;
    size_t size = 0;
    if (quiet)
        return;
    bool has_entry = change == CREATE || change == WRITE || change == CHMOD;
    if ((request->flags & START_ENTRIES) && has_entry && absolute(path, full) && lstat(full, &st) == 0)
        size = stat_record(record, AT_FDCWD, full, full, &st);
    uint8_t *p = out + out_len;
    *p = (uint8_t)change;
    p = put(p + 1, path, strlen(path));
    p = put(p, from, strlen(from));
    p = put(p, record, size);
    out_len = (size_t)(p - out);
    if (out_len >= OUT)
        flush();
}

static bool drop_found(int wd, const char *name)
{
    for (unsigned i = 0; i < found_count; i++)
        if (found[i].wd == wd && strcmp(found[i].name, name) == 0) {
            bool current = position <= found[i].until;
            free(found[i].name);
            found[i] = found[--found_count];
            return current;
        }
    return false;
}

static void forget_found(void)
{
    for (unsigned i = 0; i < found_count;) {
        if (position <= found[i].until) {
            i++;
            continue;
        }
        free(found[i].name);
        found[i] = found[--found_count];
    }
}

/* All events that the kernel has queued so far end here. */
static uint64_t queued(void)
{
    int n = 0;
    return ioctl(fd, FIONREAD, &n) < 0 ? bytes_read : bytes_read + (uint64_t)n;
}

static bool is_directory(const char *path, unsigned char type)
{
    struct stat st;
    if (type != DT_UNKNOWN)
        return type == DT_DIR;
    return lstat(path, &st) == 0 && S_ISDIR(st.st_mode);
}

/* Watches a directory and those in it; with `report`, their entries are new. False at a limit. */
static bool add_tree(struct node *parent, const char *name, bool report)
{
    char path[PATH_MAX], full[PATH_MAX];
    struct node *n;
    if (!parent)
        path[0] = 0;
    else if (!node_path(parent, name, path, sizeof path))
        return false;
    if (!absolute(path, full))
        return false;
    enum node_result r = node_add(fd, full, EVENTS, parent, name, &n);
    if (!parent && r != NODE_LIMIT)
        root = n;
    if (r == NODE_LIMIT)
        return false;
    if (r == NODE_GONE || (r == NODE_KNOWN && report) || !(request->flags & START_RECURSIVE))
        return true;
    DIR *d = opendir(full);
    if (!d)
        return true;
    bool complete = true;
    struct dirent *e;
    unsigned first = found_count;
    while ((e = readdir(d))) {
        char entry[PATH_MAX], entry_full[PATH_MAX];
        if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0)
            continue;
        if (!node_path(n, e->d_name, entry, sizeof entry) || !absolute(entry, entry_full)) {
            complete = false;
            continue;
        }
        if (report) {
            emit(CREATE, entry, "");
            char *copy = found_count < FOUND_MAX ? strdup(e->d_name) : NULL;
            if (copy)
                found[found_count++] = (struct found){n->wd, UINT64_MAX, copy};
        }
        if (!is_directory(entry_full, e->d_type))
            continue;
        if (add_tree(n, e->d_name, report))
            continue;
        if (report)
            emit(OVERFLOW, entry, "");
        else
            complete = false;
    }
    closedir(d);
    uint64_t until = queued();
    for (unsigned i = first; i < found_count; i++)
        if (found[i].wd == n->wd)
            found[i].until = until;
    return complete;
}

static int ended(void)
{
    flush();
    return report_text("watch", request->path, "it was removed or moved", ENOENT);
}

/* An event about the watched directory itself. 0, or an errno that ends the watch. */
static int on_root(uint32_t mask)
{
    if (mask & (IN_DELETE_SELF | IN_MOVE_SELF | IN_IGNORED | IN_UNMOUNT))
        return ended();
    if (mask & IN_ATTRIB) {
        struct stat st;
        if (stat(request->path, &st) == 0) /* a directory that is being removed changes, too */
            emit(CHMOD, "", "");
    }
    return 0;
}

static void on_created(struct node *n, const struct inotify_event *e, const char *path)
{
    bool recursive = (request->flags & START_RECURSIVE) && (e->mask & IN_ISDIR);
    bool pair = (e->mask & IN_MOVED_TO) && e->cookie == from_cookie;
    bool known = drop_found(n->wd, e->name);
    if (!known)
        emit(CREATE, path, pair ? from_path : "");
    /* A known one may have been moved since it was read. Its limit is reported already. */
    if (recursive && !add_tree(n, e->name, true) && !known)
        emit(OVERFLOW, path, "");
}

static void on_renamed(struct node *n, const struct inotify_event *e, const char *path)
{
    from_cookie = e->cookie;
    text_copy(from_path, sizeof from_path, path);
    drop_found(n->wd, e->name);
    emit(RENAME, path, "");
    struct node *child = e->mask & IN_ISDIR ? node_child(n, e->name) : NULL;
    if (child)
        child->moving = e->cookie;
}

/*
 * The agent writes a file under another name first (write.c), and a file without a name (O_TMPFILE) has the name
 * "#" and its inode in events. A watcher sees neither: the finished file is created under its own name.
 */
static bool is_unfinished(const struct inotify_event *e, const char *path)
{
    char full[PATH_MAX];
    struct stat st;
    if (e->mask & IN_ISDIR)
        return false;
    if (strncmp(e->name, ".forkd-", 7) == 0 && strspn(e->name + 7, "0123456789") > 0)
        return true;
    if (e->name[0] != '#' || e->name[1] == 0 || e->name[1 + strspn(e->name + 1, "0123456789")] != 0)
        return false;
    return absolute(path, full) && lstat(full, &st) < 0 && errno == ENOENT;
}

static int handle(const struct inotify_event *e)
{
    char path[PATH_MAX];
    if (e->mask & IN_Q_OVERFLOW) {
        emit(OVERFLOW, "", "");
        /* Directories may have been created unnoticed. */
        if (!add_tree(NULL, "", false))
            emit(OVERFLOW, "", "");
        return root ? 0 : ended();
    }
    struct node *n = node_of(e->wd);
    if (!n)
        return 0;
    if (n == root && e->len == 0)
        return on_root(e->mask);
    if (e->mask & IN_IGNORED)
        node_forget(fd, n);
    if (e->len == 0) /* the parent's event has the name */
        return 0;
    if (!node_path(n, e->name, path, sizeof path)) {
        emit(OVERFLOW, "", "");
        return 0;
    }
    if (is_unfinished(e, path))
        return 0;
    if (e->mask & (IN_CREATE | IN_MOVED_TO))
        on_created(n, e, path);
    if (e->mask & IN_MOVED_FROM)
        on_renamed(n, e, path);
    if (e->mask & IN_DELETE) {
        drop_found(n->wd, e->name);
        emit(REMOVE, path, "");
    }
    if (e->mask & IN_MODIFY)
        emit(WRITE, path, "");
    if (e->mask & IN_ATTRIB)
        emit(CHMOD, path, "");
    return 0;
}

/* Reads once and handles the events. 0 or the errno that ends the watch. */
static int read_events(void)
{
    static char buf[65536] __attribute__((aligned(8)));
    ssize_t n = read(fd, buf, sizeof buf);
    if (n < 0)
        return errno == EAGAIN || errno == EINTR ? 0 : report_error("watch", request->path);
    bytes_read += (uint64_t)n;
    if (request->flags & START_ENTRIES)
        names_reload();
    for (ssize_t at = 0; at < n && !failed;) {
        const struct inotify_event *e = (const struct inotify_event *)(buf + at);
        at += (ssize_t)sizeof *e + e->len;
        position += sizeof *e + e->len;
        int err = handle(e);
        if (err)
            return err;
    }
    forget_found();
    return 0;
}

static int read_until(uint64_t end)
{
    int err = 0;
    uint64_t before = UINT64_MAX;
    while (!err && !failed && position < end && position != before) {
        before = position;
        err = read_events();
    }
    return err;
}

/* For each byte of input: a record after everything that has happened so far. */
static int on_input(bool *ends)
{
    char bytes[256];
    ssize_t n = read(0, bytes, sizeof bytes);
    if (n <= 0) {
        *ends = n == 0 || errno != EINTR;
        return 0;
    }
    int err = read_until(queued());
    while (!err && n-- > 0)
        emit(SYNCED, "", "");
    return err;
}

static int begin(void)
{
    struct stat st;
    if (stat(request->path, &st) < 0)
        return report_error("watch", request->path);
    if (!S_ISDIR(st.st_mode)) {
        errno = ENOTDIR;
        return report_error("watch", request->path);
    }
    fd = inotify_init1(IN_NONBLOCK | IN_CLOEXEC);
    if (fd < 0)
        return report_error("watch", request->path);
    bool complete = add_tree(NULL, "", false);
    if (!root && complete)
        return report_error("watch", request->path);
    if (!complete)
        return report_text("watch", request->path, "it has too many directories, or too deep ones", EOVERFLOW);
    /* Changes during the start are not reported, but new directories are watched. */
    quiet = true;
    int err = read_until(queued());
    quiet = false;
    if (!err)
        emit(STARTED, request->path, "");
    return err;
}

int file_watch(const struct start *s)
{
    bool ends = false;
    request = s;
    int err = begin();
    while (!err && !failed && !ends) {
        flush();
        struct pollfd p[] = {{.fd = fd, .events = POLLIN}, {.fd = 0, .events = POLLIN}};
        if (poll(p, 2, -1) < 0 && errno != EINTR)
            return report_error("watch", s->path);
        if (p[0].revents)
            err = read_events();
        if (!err && p[1].revents)
            err = on_input(&ends);
        /* A directory was moved and its second half has not come: it is outside. */
        if (!err && node_any_moving() && poll(p, 1, MOVE_MS) == 0)
            node_forget_moved(fd);
    }
    flush();
    return err;
}
