/* `--probe`: reports in one line of JSON what this host can do. Leaves nothing. */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "launch.h"

static enum variant probed;

static void try_namespaces(void)
{
    namespaces_enter(probed);
    mounts_build(NULL, 0);
}

static void try_network(void)
{
    namespaces_enter(probed);
    network_settings();
    network_up(false);
}

static void try_tap(void)
{
    namespaces_enter(probed);
    network_settings();
    tap_make();
    network_up(true);
}

/* Dials an address through the rule: the listener must see the address and the port. */
static void try_tproxy(void)
{
    try_network();
    errno = tproxy_add();
    if (errno)
        fail("tproxy rule");
    struct sockaddr_in here = {.sin_family = AF_INET, .sin_port = htons(PROXY_PORT)};
    struct sockaddr_in dialled = {.sin_family = AF_INET, .sin_port = htons(443)};
    struct sockaddr_in seen = {0};
    struct timeval second = {.tv_sec = 1};
    socklen_t length = sizeof seen;
    dialled.sin_addr.s_addr = inet_addr("198.18.0.1");
    int one = 1;
    int listener = socket(AF_INET, SOCK_STREAM, 0);
    int client = socket(AF_INET, SOCK_STREAM, 0);
    if (setsockopt(listener, IPPROTO_IP, IP_TRANSPARENT, &one, sizeof one) < 0)
        fail("transparent socket");
    setsockopt(client, SOL_SOCKET, SO_SNDTIMEO, &second, sizeof second);
    setsockopt(listener, SOL_SOCKET, SO_RCVTIMEO, &second, sizeof second);
    if (bind(listener, (void *)&here, sizeof here) < 0 || listen(listener, 1) < 0)
        fail("listener");
    if (connect(client, (void *)&dialled, sizeof dialled) < 0)
        fail("connection through the rule");
    int accepted = accept(listener, NULL, NULL);
    if (accepted < 0 || getsockname(accepted, (void *)&seen, &length) < 0)
        fail("accepted connection");
    if (seen.sin_addr.s_addr != dialled.sin_addr.s_addr || seen.sin_port != dialled.sin_port)
        refuse("the accepted connection has another address than the dialled one");
}

static void try_filter(void)
{
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
        fail("no_new_privs");
    filter_install(false);
}

static void try_landlock(void)
{
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
        fail("no_new_privs");
    struct options options = {.variant = VARIANT_NONE};
    if (!landlock_restrict(&options))
        refuse("the kernel has no Landlock, or it is off");
}

static const struct {
    const char *name;
    void (*run)(void);
} probes[] = {{"namespaces", try_namespaces},
              {"network", try_network},
              {"tap", try_tap},
              {"tproxy", try_tproxy},
              {"filter", try_filter},
              {"landlock", try_landlock}};

#define PROBES (sizeof probes / sizeof *probes)

/* Runs one probe in a child, whose error line becomes the reason. */
static bool attempt(void (*run)(void), char *reason, size_t bytes)
{
    int pipes[2];
    if (pipe(pipes) < 0)
        fail("probe");
    pid_t child = fork();
    if (child < 0)
        fail("probe");
    if (child == 0) {
        alarm(10);
        dup2(pipes[1], STDERR_FILENO);
        run();
        _exit(0);
    }
    close(pipes[1]);
    size_t used = 0;
    ssize_t n;
    while (used < bytes - 1 && (n = read(pipes[0], reason + used, bytes - 1 - used)) > 0)
        used += (size_t)n;
    close(pipes[0]);
    reason[used] = 0;
    reason[strcspn(reason, "\n")] = 0;
    int status;
    if (waitpid(child, &status, 0) < 0)
        fail("probe");
    if (!WIFEXITED(status))
        snprintf(reason, bytes, "ended by signal %d", WTERMSIG(status));
    return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

static void print_string(const char *text)
{
    putchar('"');
    for (; *text; text++)
        if ((unsigned char)*text >= ' ' && *text != '"' && *text != '\\')
            putchar(*text);
    putchar('"');
}

int probe_command(enum variant variant)
{
    static const char prefix[] = "forkd-launch: ";
    char reasons[PROBES][512];
    bool good[PROBES];
    probed = variant;
    printf("{\"variant\":\"%s\"", variant == VARIANT_ROOT ? "root" : "user");
    fflush(stdout);
    for (size_t i = 0; i < PROBES; i++)
        good[i] = attempt(probes[i].run, reasons[i], sizeof reasons[i]);
    for (size_t i = 0; i < PROBES; i++)
        printf(",\"%s\":%s", probes[i].name, good[i] ? "true" : "false");
    printf(",\"reasons\":{");
    const char *comma = "";
    for (size_t i = 0; i < PROBES; i++) {
        if (good[i])
            continue;
        const char *reason = reasons[i];
        if (strncmp(reason, prefix, sizeof prefix - 1) == 0)
            reason += sizeof prefix - 1;
        printf("%s\"%s\":", comma, probes[i].name);
        print_string(reason);
        comma = ",";
    }
    printf("}}\n");
    return 0;
}
