/* The guest's network: the interface, its routes, and the TCP connections that a fork must not keep. */
#ifndef FORKD_NETWORK_H
#define FORKD_NETWORK_H

#include <stdbool.h>
#include <stdint.h>

#include "wire/frames.h"

/* interface.c: without an interface nothing is prepared, and interface_set fails with ENODEV. Up: with routes. */
void interface_prepare(void);
bool interface_exists(void);
int interface_set(bool up);

/* NETWORK: brings the network of a running machine up or down. */
void interface_change(struct frame *f);

/*
 * connections.c: aborts every TCP connection that leaves the machine and counts them. Listening sockets and
 * connections with an end on the loopback stay. -1 with errno if some are left or the kernel cannot do it.
 */
void connections_prepare(void);
int connections_destroy(uint32_t *destroyed);

#endif
