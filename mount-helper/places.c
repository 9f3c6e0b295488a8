#include "places.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/openat2.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

static int open_folder(const char *path) {
  struct open_how how = {.flags = O_PATH | O_DIRECTORY | O_CLOEXEC, .resolve = RESOLVE_NO_SYMLINKS};
  return (int)syscall(SYS_openat2, AT_FDCWD, path, &how, sizeof how);
}

int open_parent(const char *path, const char **name) {
  const char *slash = strrchr(path, '/');
  char parent[PATH_MAX];
  size_t length = slash ? (size_t)(slash - path) : 0;
  if (!slash || length >= sizeof parent) {
    errno = EINVAL;
    return -1;
  }
  memcpy(parent, path, length);
  parent[length] = 0;
  *name = slash + 1;
  return open_folder(length == 0 ? "/" : parent);
}
