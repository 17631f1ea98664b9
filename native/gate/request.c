/* Parses requests: words with single spaces between them. */
#include <arpa/inet.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "gate.h"

#define TIMEOUT_MAX_MS 120000

static bool read_number(const char *text, uint64_t max, uint64_t *value)
{
    char *end;
    if (!text || *text < '0' || *text > '9')
        return false;
    errno = 0;
    *value = strtoull(text, &end, 10);
    return errno == 0 && *end == 0 && *value <= max;
}

static bool read_id(const char *text, char *id)
{
    static const char allowed[] = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ-_";
    if (!text || *text == 0 || strlen(text) > ID_MAX || text[strspn(text, allowed)] != 0)
        return false;
    strcpy(id, text);
    return true;
}

static bool read_ports(char *text, size_t max, struct request *request)
{
    char *rest = NULL;
    for (char *word = text ? strtok_r(text, ",", &rest) : NULL; word; word = strtok_r(NULL, ",", &rest)) {
        uint64_t port;
        if (request->port_count == max || !read_number(word, 65535, &port) || port == 0)
            return false;
        request->ports[request->port_count++] = (uint16_t)port;
    }
    return request->port_count > 0;
}

bool request_read(char *text, struct request *request, const char **why)
{
    char *rest = NULL;
    uint64_t pid, timeout;
    *request = (struct request){0};
    const char *name = strtok_r(text, " ", &rest);
    if (!read_id(strtok_r(NULL, " ", &rest), request->id)) {
        *why = "the id is not valid";
        return false;
    }
    if (name && strcmp(name, "listen") == 0)
        request->kind = KIND_LISTEN;
    else if (name && strcmp(name, "dns") == 0)
        request->kind = KIND_DNS;
    else if (name && strcmp(name, "connect") == 0)
        request->kind = KIND_CONNECT;
    else {
        *why = "the request is not listen, dns or connect";
        return false;
    }
    *why = "the process is not valid";
    if (!read_number(strtok_r(NULL, " ", &rest), INT32_MAX, &pid) || pid == 0)
        return false;
    request->pid = (pid_t)pid;
    if (!read_number(strtok_r(NULL, " ", &rest), UINT64_MAX, &request->start_time))
        return false;
    *why = "the address is not valid";
    const char *address = request->kind == KIND_LISTEN ? "0.0.0.0" : strtok_r(NULL, " ", &rest);
    if (!address || inet_pton(AF_INET, address, &request->address) != 1)
        return false;
    *why = "the port is not valid";
    if (!read_ports(strtok_r(NULL, " ", &rest), request->kind == KIND_LISTEN ? PORTS_MAX : 1, request))
        return false;
    *why = "the timeout is not valid";
    if (request->kind == KIND_CONNECT) {
        if (!read_number(strtok_r(NULL, " ", &rest), TIMEOUT_MAX_MS, &timeout) || timeout == 0)
            return false;
        request->timeout_ms = (int)timeout;
    }
    *why = "the request is too long";
    return strtok_r(NULL, " ", &rest) == NULL;
}
