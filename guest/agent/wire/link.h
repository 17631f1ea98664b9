/*
 * The link to the host: the virtio port (or a socket in --serve mode), the parser on its input and the out-queue.
 *
 * The out-queue is bounded: output of processes is pulled into it only while link_room() says so, and input is not
 * taken while answers pile up, so only answers to frames that were already accepted can pass the high mark.
 */
#ifndef FORKD_LINK_H
#define FORKD_LINK_H

#include <stdbool.h>
#include <stdint.h>

#include "wire/frames.h"

/* Takes over an open descriptor. With end_exits the agent ends when the peer closes (a port never ends). */
void link_open(int fd, bool end_exits);

/* Place for a payload of at most max bytes; link_end completes the frame. Nothing may be sent in between. */
uint8_t *link_begin(uint32_t max);
void link_end(uint8_t type, uint32_t id, uint32_t len);

void link_ok(uint32_t id);

/* ERROR with a text of the form "step: reason". */
void link_error(uint32_t id, int err, const char *step, const char *subject);

/* True while output of processes may be added. */
bool link_room(void);

/* Drops what was not yet sent: the new host does not want it. */
void link_reset(void);

/* Writes what the port takes, and goes on with input that waited for room. */
void link_flush(void);

/* Handles whole frames that are already buffered, then reads on while there is input. */
void link_pump(void);

/* The handler of a frame (dispatch.c). */
void dispatch(struct frame *f);

#endif
