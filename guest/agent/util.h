/* Small helpers on files and text. */
#ifndef FORKD_UTIL_H
#define FORKD_UTIL_H

#include <stddef.h>
#include <sys/types.h>

/* Reads a file into buf and terminates it with NUL. -1 with errno. */
ssize_t read_whole(const char *path, char *buf, size_t size);

int write_all(int fd, const void *data, size_t n);

/* Creates the missing directories above path. */
int make_parents(const char *path, mode_t mode);

/* Copies what fits, terminated with NUL, and returns the length. */
size_t text_copy(char *dst, size_t size, const char *src);

#endif
