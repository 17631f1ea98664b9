/* Makes sockets in the network namespaces of VMMs and hands them to the Node process that started it. */
#ifndef GATE_H
#define GATE_H

#include <netinet/in.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define PORTS_MAX 64
#define ID_MAX 64
#define REQUESTS_MAX 256
#define LINE_MAX_BYTES 4096

/* request.c */

enum kind { KIND_LISTEN, KIND_DNS, KIND_CONNECT };

struct request {
    enum kind kind;
    char id[ID_MAX + 1];
    pid_t pid;
    uint64_t start_time;
    struct in_addr address;
    uint16_t ports[PORTS_MAX];
    size_t port_count;
    int timeout_ms; /* of a connection */
};

/* Reads one request; false with the reason. The id is set as soon as it is known. */
bool request_read(char *text, struct request *request, const char **why);

/* serve.c: runs in a child per request */

struct result {
    int err; /* 0: a descriptor comes with it */
    uint16_t port;
    char text[120];
};

/* Serves the request, sends its results and exits. */
_Noreturn void serve(const struct request *request, int to);

/* pass.c: messages with a descriptor */

/* Sends bytes, the descriptor (if not -1) with the first of them; returns like send(). */
ssize_t send_with(int to, const void *data, size_t bytes, int fd, int flags);
/* Receives bytes and a descriptor (or -1). */
ssize_t receive_with(int from, void *data, size_t bytes, int *fd);

/* channel.c: the channel to Node, lines of JSON */

void channel_open(int fd);
/* Replies that have not been sent yet. */
size_t channel_waiting(void);
/* Events to wait for. */
short channel_events(void);
void channel_write(void);
/* Reads what is there and calls handle for each request; false at the end of the channel. */
bool channel_read(void (*handle)(char *text));
/* Queues a socket (which the channel then closes) or an error. */
void channel_socket(const char *id, enum kind kind, uint16_t port, int fd);
void channel_error(const char *id, int err, const char *text);

#endif
