/* forkd-launch: the program that the daemon starts in place of a VMM. */
#include <string.h>
#include <unistd.h>

#include "launch.h"

static void build_network(const struct options *options)
{
    if (options->net == NET_OFF)
        return;
    network_settings();
    if (options->net == NET_TAP)
        descriptors_place(tap_make(), options->tap);
    network_up(options->net == NET_TAP);
    /* Where the kernel lacks the rule, listeners on single ports work; `--probe` reports it. */
    (void)tproxy_add();
}

int main(int argc, char **argv)
{
    enum variant variant;
    if (argc == 3 && strcmp(argv[1], "--probe") == 0) {
        if (!variant_read(argv[2], &variant) || variant == VARIANT_NONE)
            refuse("--probe \"%s\" is not root or user", argv[2]);
        return probe_command(variant);
    }
    struct options options;
    options_read(&options, argc, argv);
    /* One user per machine: without a process namespace, only this separates machines from each other. */
    uid_t uid = options.variant == VARIANT_ROOT ? options.uid_first + (uint32_t)getpid() % options.uid_count : geteuid();
    descriptors_reserve(&options);
    listeners_make(&options);
    track_open(&options);
    if (options.variant == VARIANT_ROOT)
        files_own(&options, uid);
    if (options.variant != VARIANT_NONE) {
        namespaces_enter(options.variant);
        build_network(&options);
    }
    oom_score_raise();
    huge_pages_refuse();
    if (options.variant != VARIANT_NONE)
        mounts_build(options.places, options.place_count);
    limits_set(&options);
    descriptors_close(&options);
    privileges_drop(&options, uid);
    if (options.variant != VARIANT_ROOT && options.place_count > 0)
        (void)landlock_restrict(&options); /* `--probe` reports if it is missing */
    if (options.filter)
        filter_install(options.net == NET_SLIRP);
    execve(options.program[0], options.program, options.env);
    fail("exec %s", options.program[0]);
}
