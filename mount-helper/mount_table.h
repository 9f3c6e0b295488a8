// Looks into /proc/self/mountinfo, which never asks a filesystem and so never hangs on a dead one.
#pragma once
#include <stdint.h>

// The device (minor; FUSE mounts have major 0) of the topmost mount at `path`: 0 if none, or if it is not of mediafs.
uint32_t mounted_device(const char *path);
