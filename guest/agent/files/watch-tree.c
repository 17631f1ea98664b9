/*
 * The directories of a watch. See watch.h.
 *
 * inotify reports a number for each watched directory. A node knows its parent and its name, so that the path
 * of a directory stays right when one above it is renamed.
 */
#include "files/watch.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>

#include "files/builtin.h"

#define BUCKETS 4096 /* power of two */

static struct node *buckets[BUCKETS];
static struct node *all;
static unsigned count;

struct node *node_of(int wd)
{
    struct node *n = buckets[(unsigned)wd % BUCKETS];
    while (n && n->wd != wd)
        n = n->next;
    return n;
}

struct node *node_child(const struct node *parent, const char *name)
{
    struct node *n = all;
    while (n && (n->parent != parent || strcmp(n->name, name) != 0))
        n = n->all_next;
    return n;
}

bool node_any_moving(void)
{
    const struct node *n = all;
    while (n && !n->moving)
        n = n->all_next;
    return n != NULL;
}

static bool is_below(const struct node *n, const struct node *top)
{
    while (n && n != top)
        n = n->parent;
    return n == top;
}

bool node_path(const struct node *n, const char *name, char *dst, size_t size)
{
    const struct node *chain[WATCH_DEPTH + 2];
    int depth = 0;
    for (; n && n->parent; n = n->parent) {
        if (depth > WATCH_DEPTH)
            return false;
        chain[depth++] = n;
    }
    size_t at = 0;
    for (int i = depth; i >= 0; i--) {
        const char *part = i > 0 ? chain[i - 1]->name : name;
        size_t m = strlen(part);
        if (at + m + 2 > size)
            return false;
        if (at > 0 && m > 0)
            dst[at++] = '/';
        memcpy(dst + at, part, m);
        at += m;
    }
    dst[at] = 0;
    return true;
}

static unsigned depth_of(const struct node *n)
{
    unsigned depth = 0;
    for (; n; n = n->parent)
        depth++;
    return depth;
}

enum node_result node_add(int fd, const char *path, uint32_t mask, struct node *parent, const char *name,
                          struct node **out)
{
    struct node *n;
    *out = NULL;
    if (parent && depth_of(parent) > WATCH_DEPTH)
        return NODE_LIMIT;
    int wd = inotify_add_watch(fd, path, mask | IN_ONLYDIR | (parent ? IN_DONT_FOLLOW : 0));
    if (wd < 0)
        return errno == ENOSPC || errno == ENOMEM ? NODE_LIMIT : NODE_GONE;
    if ((n = node_of(wd))) {
        /* A mount can show a directory inside itself: an ancestor keeps its place. */
        char *copy = n->parent && !is_below(parent, n) ? strdup(name) : NULL;
        if (copy) {
            free(n->name);
            n->name = copy;
            n->parent = parent;
            n->moving = 0;
        }
        *out = n;
        return NODE_KNOWN;
    }
    n = count < WATCH_MAX ? calloc(1, sizeof *n) : NULL;
    if (!n || !(n->name = strdup(name))) {
        free(n);
        inotify_rm_watch(fd, wd);
        return NODE_LIMIT;
    }
    n->wd = wd;
    n->parent = parent;
    n->next = buckets[(unsigned)wd % BUCKETS];
    buckets[(unsigned)wd % BUCKETS] = n;
    n->all_next = all;
    all = n;
    count++;
    *out = n;
    return NODE_NEW;
}

static void unlink_node(struct node *n)
{
    struct node **at = &buckets[(unsigned)n->wd % BUCKETS];
    while (*at != n)
        at = &(*at)->next;
    *at = n->next;
    for (at = &all; *at != n;)
        at = &(*at)->all_next;
    *at = n->all_next;
    count--;
}

void node_forget(int fd, struct node *top)
{
    /* Marked first: a freed parent cannot be followed. */
    struct node *gone = NULL;
    for (struct node *n = all, *next; n; n = next) {
        next = n->all_next;
        n->gone = is_below(n, top);
    }
    for (struct node *n = all, *next; n; n = next) {
        next = n->all_next;
        if (!n->gone)
            continue;
        unlink_node(n);
        inotify_rm_watch(fd, n->wd); /* fails for a directory that was removed */
        n->next = gone;
        gone = n;
    }
    while (gone) {
        struct node *next = gone->next;
        free(gone->name);
        free(gone);
        gone = next;
    }
}

void node_forget_moved(int fd)
{
    for (struct node *n = all; n;) {
        if (!n->moving) {
            n = n->all_next;
            continue;
        }
        node_forget(fd, n);
        n = all;
    }
}
