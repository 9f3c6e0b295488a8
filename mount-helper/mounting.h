// The mount: libfuse mounts, and the helper unmounts.
#pragma once
#include <stdbool.h>

#include "mount.h"
#include "settings.h"

// Mounts. Returns 0, or -1 after a message on stderr.
int mount_filesystem(const struct settings *settings, struct mount *mount);

// Whether the connection is alive: it is not after an unmount or an abort.
bool is_connected(const struct mount *mount);

// Whether the mount is in the table of mounts, and no other one has its number.
bool is_there(const struct mount *mount);

// Ends every request of the mount, as `umount -f` does: programs get ECONNABORTED or ENOTCONN.
void abort_connection(const struct mount *mount);

// Unmounts if the mount still exists, lazily if it is busy, and closes /dev/fuse: processes that still wait for an
// answer get ENOTCONN. Never unmounts another mount.
void unmount_filesystem(const struct settings *settings, struct mount *mount);
