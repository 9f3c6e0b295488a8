// The kernel's table of mounts. The kernel asks no filesystem for it, so a dead one cannot block.
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// Finds the current path of the mediafs mount with that mount id and minor device number (the major one is 0). False if
// there is none.
bool find_mount(uint64_t id, uint32_t device, char *path, size_t space);

// The type of the filesystem of the mount with that id. False if there is none in this namespace.
bool find_type(uint64_t id, char *type, size_t space);
