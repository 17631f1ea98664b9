/*
 * Names of users and groups for stat records. Each file is read when the first name is needed, and the last
 * answers are kept: the entries of a directory have few owners.
 */
#include <stdlib.h>
#include <string.h>

#include "files/builtin.h"
#include "process/users.h"
#include "util.h"

#define KEPT 16

struct kept {
    uint32_t id;
    bool used;
    char name[OWNER_MAX + 1];
};

struct database {
    const char *path;
    char *text;
    struct kept kept[KEPT];
    unsigned next;
};

static struct database users = {.path = "/etc/passwd"}, groups = {.path = "/etc/group"};

/* Both files have the name in the first and the number in the third column. */
static void find(struct database *d, uint32_t id, char *name)
{
    if (!d->text)
        d->text = database_load(d->path);
    for (const char *line = d->text; line && *line; line = strchr(line, '\n') ? strchr(line, '\n') + 1 : NULL) {
        size_t length = strcspn(line, ":\n");
        const char *second = line[length] == ':' ? line + length + 1 : NULL;
        const char *third = second ? second + strcspn(second, ":\n") : NULL;
        if (!third || *third != ':' || length == 0 || length > OWNER_MAX || *line == '#')
            continue;
        char *end;
        unsigned long number = third[1] >= '0' && third[1] <= '9' ? strtoul(third + 1, &end, 10) : (unsigned long)-1;
        if (number != id)
            continue;
        memcpy(name, line, length);
        name[length] = 0;
        return;
    }
    name[0] = 0;
}

static const char *name_of(struct database *d, uint32_t id)
{
    for (unsigned i = 0; i < KEPT; i++)
        if (d->kept[i].used && d->kept[i].id == id)
            return d->kept[i].name;
    struct kept *k = &d->kept[d->next++ % KEPT];
    k->used = true;
    k->id = id;
    find(d, id, k->name);
    return k->name;
}

const char *owner_name(uid_t uid) { return name_of(&users, uid); }
const char *group_name(gid_t gid) { return name_of(&groups, gid); }

void names_reload(void)
{
    struct database *all[] = {&users, &groups};
    for (unsigned i = 0; i < 2; i++) {
        free(all[i]->text);
        all[i]->text = NULL;
        memset(all[i]->kept, 0, sizeof all[i]->kept);
    }
}
