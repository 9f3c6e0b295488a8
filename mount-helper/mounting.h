// The mount itself: made through libfuse, taken away by ourselves.
#pragma once
#include <stdint.h>

#include "settings.h"

struct mount {
  int device_fd;    // /dev/fuse, or -1 while nothing is mounted
  uint32_t device;  // the mount's device number (minor)
};

// Mounts. 0, or -1 when stderr says why.
int mount_filesystem(const struct settings *settings, struct mount *mount);

// Takes the mount away if it is still there, lazily if it is busy, and closes /dev/fuse: who still waits for an answer
// gets ENOTCONN. Never another's mount.
void unmount_filesystem(const struct settings *settings, struct mount *mount);
