/*
 * The link to the host: the virtio port (or a socket in --serve mode), the parser on its input and the
 * out-queue.
 *
 * The out-queue is bounded: output of processes is added only while link_room() is true, and no input is read
 * while replies wait. So only replies to frames that were already accepted can exceed the limit.
 */
#ifndef FORKD_LINK_H
#define FORKD_LINK_H

#include <stdbool.h>
#include <stdint.h>

#include "wire/frames.h"

/* Serves an open descriptor. With end_exits the agent exits when the peer closes (a port never closes). */
void link_open(int fd, bool end_exits);

/* Reserves a payload of at most max bytes; link_end completes the frame. Send nothing in between. */
uint8_t *link_begin(uint32_t max);
void link_end(uint8_t type, uint32_t id, uint32_t len);

void link_ok(uint32_t id);

/* ERROR with a text of the form "step: reason". */
void link_error(uint32_t id, int err, const char *step, const char *subject);

/* True while the queue accepts output of processes. */
bool link_room(void);

/* Drops unsent frames: they were for the previous host. */
void link_reset(void);

/* Writes as much as the port accepts, then handles input that waited for space in the queue. */
void link_flush(void);

/* Handles whole frames that are already buffered, then reads while there is input. */
void link_pump(void);

/* As link_pump, and uses the port in both directions even if it sent no event. */
void link_retry(void);

/* True while a write waits for space in the port. Any thread may ask. */
bool link_is_blocked(void);

/* Handles one frame (dispatch.c). */
void dispatch(struct frame *f);

#endif
