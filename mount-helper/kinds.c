#include "kinds.h"

#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>

#include "mount_table.h"

// With this flag and these masks, the kernel asks no filesystem.
static bool ask(int descriptor, unsigned mask, struct statx *status) {
  return statx(descriptor, "", AT_EMPTY_PATH | AT_STATX_DONT_SYNC, mask, status) == 0;
}

bool is_folder(int descriptor) {
  struct statx status;
  return ask(descriptor, STATX_TYPE, &status) && S_ISDIR(status.stx_mode);
}

bool is_regular(int descriptor) {
  struct statx status;
  return ask(descriptor, STATX_TYPE, &status) && S_ISREG(status.stx_mode);
}

bool is_device(int descriptor) {
  struct statx status;
  return ask(descriptor, STATX_TYPE, &status) && S_ISCHR(status.stx_mode);
}

bool find_mount_of(int descriptor, uint64_t *mount) {
  struct statx status;
  if (!ask(descriptor, 0, &status) || !(status.stx_mask & STATX_MNT_ID)) return false;
  *mount = status.stx_mnt_id;
  return true;
}

bool is_on_disk(int descriptor) {
  uint64_t mount;
  char type[32];
  // A mount of another namespace is not in the table.
  return find_mount_of(descriptor, &mount) && find_type(mount, type, sizeof type) && strncmp(type, "fuse", 4) != 0;
}
