/*
 * Decodes START and builds the environment of a command. See start.h.
 *
 * The payload is copied once, so that every string can be terminated with NUL in place: the byte after a
 * value is the key of the next field, which has been read by then.
 */
#include "process/start.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "process/proc.h"

#define LIST_MAX (FRAME_PAYLOAD_MAX / 5 + 1)
#define DEFAULTS 6
#define FIELDS 19 /* one more than the last key */
#define DEFAULT_PATH "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

static uint8_t text[FRAME_PAYLOAD_MAX + 1];
static char *arguments[LIST_MAX + 1];
static char *environment[LIST_MAX + DEFAULTS + 1];

static bool is_text(const struct field *f) { return memchr(f->val, 0, f->len) == NULL; }

static bool take_number(const struct field *f, struct start *s)
{
    static const uint8_t sizes[FIELDS] = {[1] = 1, [6] = 4, [7] = 4, [8] = 4, [9] = 4, [10] = 4, [13] = 4, [14] = 8, [15] = 8, [16] = 2, [18] = 4};
    if (f->len != sizes[f->key])
        return false;
    switch (f->key) {
    case 1: s->kind = f->val[0]; break;
    case 6: s->timeout = get_u32(f->val); break;
    case 7: s->flags = get_u32(f->val); break;
    case 8: s->rows = get_u16(f->val), s->cols = get_u16(f->val + 2); break;
    case 9: s->credit = get_u32(f->val); break;
    case 10: s->keep = get_u32(f->val); break;
    case 13: s->mode = get_u32(f->val); break;
    case 14: s->offset = get_u64(f->val); break;
    case 15: s->limit = get_u64(f->val); break;
    case 16: s->port = get_u16(f->val); break;
    case 18: s->depth = get_u32(f->val); break;
    }
    return true;
}

static bool take_text(const struct field *f, struct start *s)
{
    char *v = (char *)f->val;
    if (!is_text(f))
        return false;
    switch (f->key) {
    case 2: s->argv[s->argc++] = v; break;
    case 3:
        if (!strchr(v, '=') || *v == '=')
            return false;
        s->env[s->envc++] = v;
        break;
    case 4: s->cwd = v; break;
    case 5: s->user = v; break;
    case 11: s->path = v; break;
    case 12: s->path2 = v; break;
    case 17:
        if (f->len > 64)
            return false;
        s->label = v;
        break;
    }
    return true;
}

/* The name of a required field that is missing, or NULL. */
static const char *missing(const struct start *s)
{
    if (s->kind >= KIND_COUNT)
        return "kind";
    if (s->kind == KIND_COMMAND && (s->argc == 0 || !*s->argv[0]))
        return "argv";
    if (s->kind != KIND_COMMAND && s->kind != KIND_CONNECT && (!s->path || !*s->path))
        return "path";
    if (s->kind == KIND_MOVE && (!s->path2 || !*s->path2))
        return "second path";
    if (s->kind == KIND_CONNECT && s->port == 0)
        return "port";
    return NULL;
}

int start_parse(const struct frame *f, struct start *s, const char **step)
{
    memset(s, 0, sizeof *s);
    s->argv = arguments;
    s->env = environment;
    s->keep = KEEP_DEFAULT;
    s->rows = 24;
    s->cols = 80;
    memcpy(text, f->payload, f->len);
    text[f->len] = 0;
    *step = "START";
    struct fields all = {text, text + f->len};
    struct field now, next;
    int more = field_next(&all, &now);
    while (more > 0) {
        /* Read the next header before the NUL overwrites its key. */
        more = field_next(&all, &next);
        now.val[now.len] = 0;
        bool known = now.key < FIELDS, fixed = known && now.key != 2 && now.key != 3 && now.key != 4 && now.key != 5 &&
                                            now.key != 11 && now.key != 12 && now.key != 17;
        if (known && !(fixed ? take_number(&now, s) : take_text(&now, s)))
            return EPROTO;
        now = next;
    }
    if (more < 0)
        return EPROTO;
    s->argv[s->argc] = NULL;
    s->env[s->envc] = NULL;
    if (s->keep == 0)
        s->keep = KEEP_DEFAULT;
    if (s->keep > KEEP_MAX)
        s->keep = KEEP_MAX;
    *step = missing(s);
    if (*step)
        return EINVAL;
    if (s->kind == KIND_CONNECT)
        return 0;
    *step = "user";
    int err = user_lookup(s->user, &s->who);
    if (err)
        return err;
    *step = "path";
    return start_resolve_home(s);
}

static int resolve_home(const char **path, const char *home, char *out)
{
    const char *below = *path;
    if (!below || !*below || *below == '/')
        return 0;
    if (below[0] == '~' && (!below[1] || below[1] == '/'))
        below += below[1] ? 2 : 1;
    size_t n = strlen(home), m = strlen(below);
    while (n > 0 && home[n - 1] == '/')
        n--;
    if (n + 1 + m >= PATH_MAX)
        return ENAMETOOLONG;
    memcpy(out, home, n);
    out[n] = '/';
    memcpy(out + n + 1, below, m + 1);
    if (m == 0 && n > 0)
        out[n] = 0;
    *path = out;
    return 0;
}

int start_resolve_home(struct start *s)
{
    static char cwd[PATH_MAX], path[PATH_MAX], path2[PATH_MAX];
    int err = resolve_home(&s->cwd, s->who.home, cwd);
    if (!err)
        err = resolve_home(&s->path, s->who.home, path);
    return err ? err : resolve_home(&s->path2, s->who.home, path2);
}

bool start_is_kernel(const struct start *s)
{
    return s->kind == KIND_COMMAND && (s->flags & START_CONTROL) && s->label && strncmp(s->label, "kernel:", 7) == 0;
}

static void add_default(struct start *s, char *entry)
{
    size_t name = (size_t)(strchr(entry, '=') - entry) + 1;
    for (uint32_t i = 0; i < s->envc; i++)
        if (strncmp(s->env[i], entry, name) == 0)
            return;
    s->env[s->envc++] = entry;
}

/* A later field replaces an earlier one of the same name. */
static void drop_repeated(struct start *s)
{
    uint32_t kept = 0;
    for (uint32_t i = 0; i < s->envc; i++) {
        size_t name = (size_t)(strchr(s->env[i], '=') - s->env[i]) + 1;
        uint32_t j = 0;
        while (j < kept && strncmp(s->env[j], s->env[i], name) != 0)
            j++;
        s->env[j] = s->env[i];
        if (j == kept)
            kept++;
    }
    s->envc = kept;
}

void start_environment(struct start *s)
{
    static char home[5 + sizeof s->who.home], user[5 + sizeof s->who.name], logname[8 + sizeof s->who.name];
    static char path[] = DEFAULT_PATH, lang[] = "LANG=C.UTF-8", term[] = "TERM=xterm-256color";
    strcat(strcpy(home, "HOME="), s->who.home);
    strcat(strcpy(user, "USER="), s->who.name);
    strcat(strcpy(logname, "LOGNAME="), s->who.name);
    drop_repeated(s);
    add_default(s, path);
    add_default(s, home);
    add_default(s, user);
    add_default(s, logname);
    add_default(s, lang);
    if (s->flags & START_PTY)
        add_default(s, term);
    s->env[s->envc] = NULL;
}
