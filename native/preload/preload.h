/* Preloaded into VMMs. Each file has one task; readonly.c has the functions that open files. */
#ifndef PRELOAD_H
#define PRELOAD_H

#include <stdbool.h>

/* compose.c */

/* Whether this is the path of the view that the process gets its memory from. */
bool compose_is_view(const char *path);
/* Opens the base of the view without write access. Ends the process if the view cannot be used. */
int compose_open(void);

#endif
