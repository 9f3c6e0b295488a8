// The kernel's table of mounts. Reading it asks no filesystem, so it never hangs on a dead one.
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// Where the mediafs mount of that mount id and device number (minor; the major is 0) is now; false when there is none.
bool find_mount(uint64_t id, uint32_t device, char *path, size_t space);
