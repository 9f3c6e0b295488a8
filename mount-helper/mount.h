// A mount, and the connection to its filesystem.
#pragma once
#include <stdint.h>

// STATX_MNT_ID_UNIQUE, which older headers lack.
enum { MOUNT_ID_UNIQUE = 0x4000 };

struct mount {
  int device_fd;    // /dev/fuse, or -1 while there is no mount
  uint32_t device;  // the mount's device number (minor)
  uint64_t id;      // the kernel's number for the mount, which stays the same when a folder of its path is renamed
  uint64_t unique;  // a number that no later mount has; 0 where the kernel has none (before Linux 6.8)
};
