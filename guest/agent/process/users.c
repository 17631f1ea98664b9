/* User lookup. See users.h. */
#include "process/users.h"

#include <errno.h>
#include <grp.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "util.h"

#define DATABASE_MAX (1024 * 1024)

char *database_load(const char *path)
{
    char *buf = malloc(DATABASE_MAX);
    if (buf && read_whole(path, buf, DATABASE_MAX) < 0)
        buf[0] = 0;
    return buf;
}

/* Splits the next line of the text at colons. Returns the number of columns, 0 at the end of the text. */
static int next_row(char **text, char *col[], int max)
{
    char *line;
    do {
        line = strsep(text, "\n");
        if (!line)
            return 0;
    } while (!*line || *line == '#');
    int n = 0;
    while (n < max && line)
        col[n++] = strsep(&line, ":");
    return n;
}

static bool number(const char *s, uint32_t *v)
{
    char *end;
    if (*s < '0' || *s > '9')
        return false;
    errno = 0;
    unsigned long n = strtoul(s, &end, 10);
    if (*end || errno || n >= UINT32_MAX)
        return false;
    *v = (uint32_t)n;
    return true;
}

/* Finds a row of /etc/passwd by name or by number. */
static bool find_user(const char *name, struct user *u)
{
    uint32_t wanted = 0, uid, gid;
    bool numeric = number(name, &wanted), found = false;
    char *text = database_load("/etc/passwd"), *rest = text, *col[7];
    int n;
    while (text && !found && (n = next_row(&rest, col, 7)) > 0) {
        if (n < 6 || !number(col[2], &uid) || !number(col[3], &gid))
            continue;
        if (strcmp(col[0], name) != 0 && !(numeric && uid == wanted))
            continue;
        u->uid = uid;
        u->gid = gid;
        text_copy(u->name, sizeof u->name, col[0]);
        text_copy(u->home, sizeof u->home, col[5]);
        found = true;
    }
    free(text);
    return found;
}

/* Reads /etc/group once: the id of `group` (unless NULL) and the groups of the user. */
static bool scan_groups(struct user *u, const char *group)
{
    char *text = database_load("/etc/group"), *rest = text, *col[4];
    bool found = group == NULL;
    uint32_t gid;
    int n;
    while (text && (n = next_row(&rest, col, 4)) > 0) {
        if (n < 3 || !number(col[2], &gid))
            continue;
        if (group && strcmp(col[0], group) == 0) {
            u->gid = gid;
            found = true;
        }
        char *members = n > 3 ? col[3] : NULL, *m;
        while (members && (m = strsep(&members, ",")))
            if (strcmp(m, u->name) == 0 && u->group_count < USER_GROUPS)
                u->groups[u->group_count++] = gid;
    }
    free(text);
    if (!found && number(group, &gid)) {
        u->gid = gid;
        found = true;
    }
    return found;
}

int user_lookup(const char *spec, struct user *u)
{
    char own[16], copy[160];
    memset(u, 0, sizeof *u);
    if (!spec || !*spec) {
        /* An agent without privileges (--serve in a test) can only use its own user. */
        uint32_t uid = geteuid();
        int i = (int)sizeof own - 1;
        own[i] = 0;
        do
            own[--i] = (char)('0' + uid % 10);
        while (uid /= 10);
        spec = own + i;
    }
    if (strlen(spec) >= sizeof copy)
        return EINVAL;
    strcpy(copy, spec);
    char *group = strchr(copy, ':');
    if (group)
        *group++ = 0;
    if (!find_user(copy, u)) {
        uint32_t uid;
        if (!number(copy, &uid))
            return EINVAL;
        u->uid = uid;
        u->gid = uid;
        text_copy(u->name, sizeof u->name, uid == 0 ? "root" : copy);
        text_copy(u->home, sizeof u->home, uid == 0 ? "/root" : "/");
    }
    /* Root needs no supplementary groups. Not reading the file makes the default user faster. */
    if (!group && u->uid == 0)
        return 0;
    return scan_groups(u, group && *group ? group : NULL) ? 0 : EINVAL;
}

int user_become(const struct user *u)
{
    if (geteuid() != 0) {
        if (u->uid == geteuid())
            return 0;
        errno = EPERM;
        return -1;
    }
    if (setgroups((size_t)u->group_count, u->groups) < 0 || setresgid(u->gid, u->gid, u->gid) < 0)
        return -1;
    return setresuid(u->uid, u->uid, u->uid);
}
