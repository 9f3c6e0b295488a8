// The mount itself: libfuse makes it, the helper unmounts it.
#pragma once
#include <stdint.h>

#include "settings.h"

struct mount {
  int device_fd;    // /dev/fuse, or -1 while nothing is mounted
  uint32_t device;  // the mount's device number (minor)
  uint64_t id;      // the kernel's number for the mount, by which it is found again wherever its folder is by then
};

// Mounts. 0, or -1 when stderr says why.
int mount_filesystem(const struct settings *settings, struct mount *mount);

// Unmounts if the mount is still there, lazily if it is busy, and closes /dev/fuse: who still waits for an answer gets
// ENOTCONN. Never unmounts another's mount.
void unmount_filesystem(const struct settings *settings, struct mount *mount);
