/* Directories of a watch, for watch.c. */
#ifndef FORKD_WATCH_H
#define FORKD_WATCH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define WATCH_MAX 8192 /* directories of one watch */
#define WATCH_DEPTH 64 /* levels below the watched directory */

struct node {
    int wd;
    uint32_t moving; /* cookie of the rename that took it away, until the second half of it arrives; 0 = none */
    bool gone;
    char *name;          /* below its parent; empty for the watched directory */
    struct node *parent; /* NULL for the watched directory */
    struct node *next, *all_next;
};

enum node_result {
    NODE_NEW,
    NODE_KNOWN, /* watched before, perhaps elsewhere: it has its new place */
    NODE_GONE,  /* removed, replaced or not readable */
    NODE_LIMIT, /* too many or too deep */
};

/* Watches a directory at `path`, which is `name` in `parent`. */
enum node_result node_add(int fd, const char *path, uint32_t mask, struct node *parent, const char *name,
                          struct node **out);

struct node *node_of(int wd);
struct node *node_child(const struct node *parent, const char *name);

/* The path of an entry (or of the node itself if the name is empty) below the watched directory. */
bool node_path(const struct node *n, const char *name, char *dst, size_t size);

/* Ends the watches of a directory and of those below it. */
void node_forget(int fd, struct node *top);

/* Directories that were moved, and are not yet known to be inside or outside: any, and forget them. */
bool node_any_moving(void);
void node_forget_moved(int fd);

#endif
