/*
 * Users of the guest, read from /etc/passwd and /etc/group directly: the binary is static and has no NSS.
 */
#ifndef FORKD_USERS_H
#define FORKD_USERS_H

#include <stdbool.h>
#include <sys/types.h>

#define USER_GROUPS 64

struct user {
    uid_t uid;
    gid_t gid;
    char name[64];
    char home[256];
    gid_t groups[USER_GROUPS];
    int group_count;
};

/* `name`, `uid`, `name:group` or `uid:gid`; NULL is the default user. 0 or EINVAL. */
int user_lookup(const char *spec, struct user *u);

/* The text of /etc/passwd or /etc/group, at most 1 MiB; empty if it cannot be read. Freed by the caller. */
char *database_load(const char *path);

/* Switches to the user permanently. 0 or -1 with errno. Safe between vfork and exec. */
int user_become(const struct user *u);

#endif
