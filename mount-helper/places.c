#include "places.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/openat2.h>
#include <stdlib.h>
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

void remove_made_folders(const struct settings *settings) {
  char *path = strdup(settings->mountpoint);
  for (int i = 0; path && i < settings->made_folders; i++) {
    const char *name;
    int parent = open_parent(path, &name);
    int result = parent < 0 ? -1 : unlinkat(parent, name, AT_REMOVEDIR);
    if (parent >= 0) close(parent);
    if (result != 0) break;
    char *slash = strrchr(path, '/');
    if (!slash || slash == path) break;
    *slash = 0;
  }
  free(path);
}
