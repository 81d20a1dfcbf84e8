/* A folder of temporary files for a test program. Linked into every test program. */
#ifndef TESTS_FOLDER_H
#define TESTS_FOLDER_H

#include <stddef.h>

extern char folder[64]; /* its path, after make_folder */

/* Set-up and tear-down of a test or a group: a new, empty folder; and it is removed with all that
 * is in it. */
int make_folder(void **state);
int remove_folder(void **state);

/* The path of a file there. Valid until eight more calls. */
const char *in_folder(const char *name);

size_t files_in_folder(void);

/* Removes a folder, if it exists, with all that is in it. Returns 0, or -1 if that failed. */
int remove_tree(const char *path);

#endif
