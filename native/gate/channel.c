/*
 * Node's IPC channel: lines of JSON in both directions. A line that brings a socket has the command NODE_HANDLE,
 * and Node acknowledges it before the next one. Requests arrive as JSON strings without escapes.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "gate.h"

#define SEND_AGAIN_MAX 3
/* More than that only wait if Node sends requests and does not read the replies. */
#define REPLIES_MAX 4096

struct reply {
    struct reply *next;
    int fd;          /* -1: an error */
    int sent_again;
    size_t bytes, sent;
    char text[512];
};

static int channel;
static struct reply *first, **last = &first;
static size_t waiting;
static bool unacknowledged; /* the first reply has been sent and Node has not confirmed its socket */
static char input[LINE_MAX_BYTES];
static size_t input_bytes;
static bool skip_line; /* the rest of a line that was too long */

void channel_open(int fd)
{
    channel = fd;
    fcntl(fd, F_SETFD, FD_CLOEXEC);
    fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK);
}

size_t channel_waiting(void) { return waiting; }

short channel_events(void) { return (short)(POLLIN | (first && !unacknowledged ? POLLOUT : 0)); }

static struct reply *queue(int fd)
{
    struct reply *reply = waiting < REPLIES_MAX ? calloc(1, sizeof *reply) : NULL;
    if (!reply)
        _exit(1);
    reply->fd = fd;
    *last = reply;
    last = &reply->next;
    waiting++;
    return reply;
}

static void drop_first(void)
{
    struct reply *reply = first;
    if (reply->fd >= 0)
        close(reply->fd);
    first = reply->next;
    if (!first)
        last = &first;
    free(reply);
    waiting--;
    unacknowledged = false;
}

/* Ids that look like numbers are numbers in the reply. */
static const char *quote(const char *id)
{
    bool number = *id && strlen(id) <= 15 && id[strspn(id, "0123456789")] == 0 && (*id != '0' || id[1] == 0);
    return number ? "" : "\"";
}

void channel_socket(const char *id, enum kind kind, uint16_t port, int fd)
{
    static const char *const types[] = {
        [KIND_LISTEN] = "net.Server", [KIND_DNS] = "dgram.Socket", [KIND_CONNECT] = "net.Socket"};
    struct reply *reply = queue(fd);
    const char *q = quote(id);
    int n = snprintf(reply->text, sizeof reply->text,
                     "{\"cmd\":\"NODE_HANDLE\",\"type\":\"%s\"%s,\"msg\":{\"id\":%s%s%s,\"port\":%u}}\n", types[kind],
                     kind == KIND_DNS ? ",\"dgramType\":\"udp4\"" : "", q, id, q, port);
    reply->bytes = (size_t)n;
}

void channel_error(const char *id, int err, const char *text)
{
    struct reply *reply = queue(-1);
    const char *name = strerrorname_np(err);
    const char *q = quote(id);
    int n = snprintf(reply->text, sizeof reply->text,
                     "{\"id\":%s%s%s,\"error\":\"%s\",\"errno\":%d,\"code\":\"%s\"}\n", q, id, q, text, err,
                     name ? name : "EIO");
    reply->bytes = (size_t)n;
}

void channel_write(void)
{
    while (first && !unacknowledged) {
        struct reply *reply = first;
        int fd = reply->sent == 0 ? reply->fd : -1;
        ssize_t n = send_with(channel, reply->text + reply->sent, reply->bytes - reply->sent, fd, 0);
        if (n < 0 && (errno == EAGAIN || errno == EINTR))
            return;
        if (n < 0)
            _exit(errno == EPIPE || errno == ECONNRESET ? 0 : 1);
        reply->sent += (size_t)n;
        if (reply->sent < reply->bytes)
            continue;
        if (reply->fd < 0)
            drop_first();
        else
            unacknowledged = true;
    }
}

/* Node did not find the descriptor in the message. */
static void send_again(void)
{
    unacknowledged = false;
    if (first->sent_again++ < SEND_AGAIN_MAX)
        first->sent = 0;
    else
        drop_first();
}

static void handle_line(char *line, size_t bytes, void (*handle)(char *text))
{
    if (bytes >= 2 && line[0] == '"' && line[bytes - 1] == '"' && !memchr(line, '\\', bytes) &&
        !memchr(line, 0, bytes)) {
        line[bytes - 1] = 0;
        handle(line + 1);
        return;
    }
    line[bytes] = 0;
    if (unacknowledged && strstr(line, "\"NODE_HANDLE_ACK\""))
        drop_first();
    else if (unacknowledged && strstr(line, "\"NODE_HANDLE_NACK\""))
        send_again();
}

bool channel_read(void (*handle)(char *text))
{
    ssize_t n = recv(channel, input + input_bytes, sizeof input - input_bytes, MSG_DONTWAIT);
    if (n < 0)
        return errno == EAGAIN || errno == EINTR;
    if (n == 0)
        return false;
    input_bytes += (size_t)n;
    char *line = input, *end;
    while ((end = memchr(line, '\n', input_bytes - (size_t)(line - input)))) {
        if (!skip_line)
            handle_line(line, (size_t)(end - line), handle);
        skip_line = false;
        line = end + 1;
    }
    input_bytes -= (size_t)(line - input);
    memmove(input, line, input_bytes);
    if (input_bytes == sizeof input) {
        skip_line = true;
        input_bytes = 0;
    }
    return true;
}
