/*
 * Shared by the operations that the agent runs in a child process (files, TCP). An error is one line on
 * descriptor 2 and the errno as the exit code.
 */
#ifndef FORKD_BUILTIN_H
#define FORKD_BUILTIN_H

#include <limits.h>
#include <sys/stat.h>

#include "process/start.h"

/* Writes "cannot <verb> '<path>': <reason>" for errno and returns errno. */
int report_error(const char *verb, const char *path);

/* The same with another reason; returns err. */
int report_text(const char *verb, const char *path, const char *reason, int err);

/* Builds the path of a directory entry; false when it is too long (ENAMETOOLONG). */
bool join_path(char *dst, size_t size, const char *dir, const char *name);

/* Longest name of a user or group in a record. */
#define OWNER_MAX 64

/* Longest record of one file. */
#define STAT_MAX (1 + 4 + 8 + 8 + 4 + 4 + 1 + 4 + 5 * 2 + 3 * PATH_MAX + 2 * OWNER_MAX)

/* files.c */
int file_read(const struct start *s);
int file_mkdir(const struct start *s);

/* stat.c: stat_record writes the record of a file to dst (STAT_MAX bytes) and returns its length. */
int file_list(const struct start *s);
int file_stat(const struct start *s);
size_t stat_record(uint8_t *dst, int dir, const char *path, const char *name, const struct stat *st);

/* names.c: the empty string if the number has no name. */
const char *owner_name(uid_t uid);
const char *group_name(gid_t gid);
void names_reload(void);

/* watch.c */
int file_watch(const struct start *s);

/* write.c */
int file_write(const struct start *s);

/* tree.c */
int file_move(const struct start *s);
int file_remove(const struct start *s);
int file_chmod(const struct start *s);
int tree_remove(const char *path);

/* copy.c */
int tree_copy(const char *from, const char *to);

/* tcp.c */
int tcp_connect(const struct start *s);

#endif
