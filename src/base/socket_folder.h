/* Folders for the sockets of a user's workers on one machine, and for the status files that
 * `lockstep top` reads. Only this user can write there, so
 * other users cannot take a worker's address. Candidates, in order of preference:
 *
 * clang-format off
 *     $XDG_RUNTIME_DIR/lockstep    if the variable is set
 *     /tmp/lockstep-UID
 *     $HOME/.lockstep-sockets      if another user created the one in /tmp
 * clang-format on */
#ifndef LS_BASE_SOCKET_FOLDER_H
#define LS_BASE_SOCKET_FOLDER_H

#include "base/status.h"

#define LS_SOCKET_FOLDERS      3
#define LS_SOCKET_FOLDER_CHARS 64 /* folder, name and zero must fit into the 108 bytes of a socket's address */

/* Fills in the folders whose paths are short enough; returns their number. */
int ls_socket_folders(char paths[LS_SOCKET_FOLDERS][LS_SOCKET_FOLDER_CHARS]);

/* Whether the path is a folder (not a link) that only this user can write to. */
bool ls_socket_folder_is_own(const char *path);

/* Sets the path to the first candidate that is such a folder or that this process can create.
 * Returns false if there is none. */
bool ls_socket_folder_find(char path[LS_SOCKET_FOLDER_CHARS]);

/* Creates the folder if needed and locks it. Sockets are created and removed under the lock.
 * Returns false if the folder cannot be used; `why` then has the reason, and *foreign says whether
 * the path belongs to another user. */
bool ls_socket_folder_lock(const char *path, int *lock, bool *foreign, char *why, size_t bytes);

/* Removes sockets on which no process listens, and the folder if it is empty; unlocks it. */
void ls_socket_folder_clean_and_unlock(const char *path, int lock);

/* Whether the file is a socket of this user on which a process listens. */
bool ls_socket_is_live(const char *path);

/* Removes what killed processes left in all folders. */
void ls_socket_folders_clean(void);

#endif
