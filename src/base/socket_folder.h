/* Folders in which the workers of one user on one machine have their sockets. Only this user can write there, so no
 * other user can take a worker's address. Candidates, in order of preference:
 *
 * clang-format off
 *     $XDG_RUNTIME_DIR/lockstep    where the variable is set
 *     /tmp/lockstep-UID
 *     $HOME/.lockstep-sockets      where another user has made the one in /tmp
 * clang-format on
 *
 * A worker listens in the first one that it can use, and looks for others in all of them. */
#ifndef LS_BASE_SOCKET_FOLDER_H
#define LS_BASE_SOCKET_FOLDER_H

#include "base/status.h"

#define LS_SOCKET_FOLDERS 3
#define LS_SOCKET_FOLDER_CHARS                                                                                         \
    64 /* with a name and the end, a path has to fit into the 108 bytes of a socket's address */

/* Fills in the candidates whose path is short enough; returns their number. */
int ls_socket_folders(char paths[LS_SOCKET_FOLDERS][LS_SOCKET_FOLDER_CHARS]);

/* Whether this is a folder (no link) of this user that nobody else can write to. */
bool ls_socket_folder_is_own(const char *path);

/* Makes the folder where it is missing, and locks it: sockets are made and removed under the lock. False: it cannot be
 * used; *foreign: something of another user is in its place, as `why` says. */
bool ls_socket_folder_lock(const char *path, int *lock, bool *foreign, char *why, size_t bytes);

/* Removes sockets that nobody listens at, and with the last one the folder; then unlocks it. */
void ls_socket_folder_clean_and_unlock(const char *path, int lock);

/* Whether a file is a socket of this user at which a process listens. */
bool ls_socket_is_live(const char *path);

/* Removes what processes that were killed have left in all folders of this user. */
void ls_socket_folders_clean(void);

#endif
