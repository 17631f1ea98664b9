/*
 * Shared by the operations that the agent runs in a child process (files, TCP). An error is one line on
 * descriptor 2 and the errno as the exit code.
 */
#ifndef FORKD_BUILTIN_H
#define FORKD_BUILTIN_H

#include "process/start.h"

/* Writes "cannot <verb> '<path>': <reason>" for errno and returns errno. */
int report_error(const char *verb, const char *path);

/* Builds the path of a directory entry; false when it is too long (ENAMETOOLONG). */
bool join_path(char *dst, size_t size, const char *dir, const char *name);

/* files.c */
int file_read(const struct start *s);
int file_mkdir(const struct start *s);

/* filestat.c */
int file_list(const struct start *s);
int file_stat(const struct start *s);

/* filewrite.c */
int file_write(const struct start *s);

/* filetree.c */
int file_move(const struct start *s);
int file_remove(const struct start *s);
int file_chmod(const struct start *s);
int tree_remove(const char *path);

/* filecopy.c */
int tree_copy(const char *from, const char *to);

/* tcp.c */
int tcp_connect(const struct start *s);

#endif
