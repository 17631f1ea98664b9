/* The command line. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "launch.h"

/* Descriptor numbers that a caller may ask for; far below the usual limit of 1024. */
#define FD_MAX 255

static void *table(int argc, size_t bytes)
{
    void *all = calloc((size_t)argc + 1, bytes);
    if (!all)
        fail("options");
    return all;
}

/* Reads an unsigned decimal number; *end is the first character after it. */
static uint64_t number(const char *option, const char *text, uint64_t max, const char **end)
{
    char *after;
    errno = 0;
    uint64_t value = strtoull(text, &after, 10);
    if (*text < '0' || *text > '9' || errno != 0 || value > max)
        refuse("%s \"%s\" is not a number up to %llu", option, text, (unsigned long long)max);
    *end = after;
    return value;
}

static uint64_t whole_number(const char *option, const char *text, uint64_t max)
{
    const char *end;
    uint64_t value = number(option, text, max, &end);
    if (*end)
        refuse("%s \"%s\" is not a number", option, text);
    return value;
}

/* Paths name the same file outside and inside the jail, so they must not depend on a directory. */
static const char *absolute(const char *option, const char *path)
{
    const char *part = path;
    if (*path != '/' || path[1] == 0)
        refuse("%s \"%s\" is not an absolute path", option, path);
    while (part) {
        part++;
        if (strcmp(part, "..") == 0 || strncmp(part, "../", 3) == 0)
            refuse("%s \"%s\" contains ..", option, path);
        part = strchr(part, '/');
    }
    return path;
}

static int descriptor(const char *option, const char *text, const char **end)
{
    int fd = (int)number(option, text, FD_MAX, end);
    if (fd <= 2)
        refuse("%s \"%s\": descriptors 0 to 2 are always passed on", option, text);
    return fd;
}

bool variant_read(const char *text, enum variant *variant)
{
    static const char *const names[] = {[VARIANT_ROOT] = "root", [VARIANT_USER] = "user", [VARIANT_NONE] = "none"};
    for (int i = 0; i <= VARIANT_NONE; i++)
        if (strcmp(text, names[i]) == 0) {
            *variant = (enum variant)i;
            return true;
        }
    return false;
}

static void read_net(struct options *options, const char *text)
{
    if (strcmp(text, "off") == 0)
        options->net = NET_OFF;
    else if (strcmp(text, "slirp") == 0)
        options->net = NET_SLIRP;
    else if (strncmp(text, "tap:", 4) == 0) {
        const char *end;
        options->net = NET_TAP;
        options->tap = descriptor("--net", text + 4, &end);
        if (*end)
            refuse("--net \"%s\" is not off, slirp or tap:FD", text);
    } else
        refuse("--net \"%s\" is not off, slirp or tap:FD", text);
}

static void read_listener(struct options *options, const char *text)
{
    struct listener *listener = &options->listeners[options->listener_count++];
    const char *end;
    listener->fd = descriptor("--listen", text, &end);
    if (*end != ':')
        refuse("--listen \"%s\" is not FD:PATH", text);
    listener->path = absolute("--listen", end + 1);
}

static void read_uids(struct options *options, const char *text)
{
    const char *end;
    options->uid_first = (uint32_t)number("--uids", text, INT32_MAX, &end);
    if (*end != ':')
        refuse("--uids \"%s\" is not FIRST:COUNT", text);
    options->uid_count = (uint32_t)whole_number("--uids", end + 1, INT32_MAX);
    if (options->uid_first == 0 || options->uid_count == 0)
        refuse("--uids \"%s\" must not include root or be empty", text);
    if ((uint64_t)options->uid_first + options->uid_count > INT32_MAX)
        refuse("--uids \"%s\" ends after the last user id", text);
}

static void read_place(struct options *options, const char *option, const char *path, enum access access)
{
    options->places[options->place_count++] = (struct place){absolute(option, path), access};
}

static void read_option(struct options *options, const char *option, char *value)
{
    const char *end;
    if (strcmp(option, "--variant") == 0) {
        if (!variant_read(value, &options->variant))
            refuse("--variant \"%s\" is not root, user or none", value);
    } else if (strcmp(option, "--uids") == 0)
        read_uids(options, value);
    else if (strcmp(option, "--group") == 0)
        options->groups[options->group_count++] = (gid_t)whole_number(option, value, INT32_MAX);
    else if (strcmp(option, "--own") == 0)
        options->own[options->own_count++] = absolute(option, value);
    else if (strcmp(option, "--listen") == 0)
        read_listener(options, value);
    else if (strcmp(option, "--read") == 0)
        read_place(options, option, value, ACCESS_READ);
    else if (strcmp(option, "--write") == 0)
        read_place(options, option, value, ACCESS_WRITE);
    else if (strcmp(option, "--device") == 0)
        read_place(options, option, value, ACCESS_DEVICE);
    else if (strcmp(option, "--net") == 0)
        read_net(options, value);
    else if (strcmp(option, "--track") == 0) {
        options->track = descriptor(option, value, &end);
        if (*end)
            refuse("--track \"%s\" is not a number", value);
    } else if (strcmp(option, "--env") == 0) {
        if (!strchr(value, '='))
            refuse("--env \"%s\" is not NAME=VALUE", value);
        options->env[options->env_count++] = value;
    } else if (strcmp(option, "--limit-file") == 0)
        options->file_bytes = whole_number(option, value, INT64_MAX);
    else if (strcmp(option, "--limit-files") == 0)
        options->files = whole_number(option, value, INT32_MAX);
    else if (strcmp(option, "--limit-threads") == 0)
        options->threads = whole_number(option, value, INT32_MAX);
    else if (strcmp(option, "--keep") == 0) {
        options->keep[options->keep_count++] = descriptor(option, value, &end);
        if (*end)
            refuse("--keep \"%s\" is not a number", value);
    } else
        refuse("unknown option \"%s\"", option);
}

/* One descriptor number must not stand for two things. */
static void check_numbers(const struct options *options)
{
    bool used[FD_MAX + 1] = {false};
    for (size_t i = 0; i < options->keep_count; i++)
        used[options->keep[i]] = true;
    for (size_t i = 0; i < options->listener_count + 2; i++) {
        int own[] = {options->net == NET_TAP ? options->tap : 0, options->track};
        int fd = i < 2 ? own[i] : options->listeners[i - 2].fd;
        if (used[fd])
            refuse("descriptor %d is given twice", fd);
        used[fd] = fd != 0;
    }
}

void options_read(struct options *options, int argc, char **argv)
{
    *options = (struct options){.variant = VARIANT_NONE,
                                .groups = table(argc, sizeof(gid_t)),
                                .own = table(argc, sizeof(char *)),
                                .listeners = table(argc, sizeof(struct listener)),
                                .places = table(argc, sizeof(struct place)),
                                .env = table(argc, sizeof(char *)),
                                .keep = table(argc, sizeof(int)),
                                .file_bytes = UNLIMITED,
                                .files = UNLIMITED,
                                .threads = UNLIMITED,
                                .filter = true};
    bool variant_given = false;
    int at = 1;
    while (at < argc && strcmp(argv[at], "--") != 0) {
        const char *option = argv[at++];
        if (strcmp(option, "--no-filter") == 0) {
            options->filter = false;
            continue;
        }
        if (at >= argc)
            refuse("%s needs a value", option);
        variant_given |= strcmp(option, "--variant") == 0;
        read_option(options, option, argv[at++]);
    }
    if (at + 1 >= argc)
        refuse("usage: forkd-launch OPTIONS -- PROGRAM ARGS... | --probe root|user");
    options->program = argv + at + 1;
    absolute("program", options->program[0]);
    if (!variant_given)
        refuse("--variant is missing");
    if (options->variant == VARIANT_ROOT && options->uid_count == 0)
        refuse("--variant root needs --uids");
    if (options->variant == VARIANT_NONE && options->net != NET_OFF)
        refuse("--variant none has no network");
    check_numbers(options);
}
