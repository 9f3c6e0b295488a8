// What a descriptor of a server's is, asked of the kernel alone: a filesystem may be the user's own, and not answer.
#pragma once
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

// Whether it is a folder, a plain file, or a device such as /dev/null.
bool is_folder(int descriptor);
bool is_regular(int descriptor);
bool is_device(int descriptor);

// Whether it is on a filesystem of the kernel's, and on none that another program serves (FUSE).
bool is_on_disk(int descriptor);

// The kernel's number for the mount that it is on.
bool find_mount_of(int descriptor, uint64_t *mount);
