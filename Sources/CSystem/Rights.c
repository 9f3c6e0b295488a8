#define _GNU_SOURCE
#include "CSystem.h"
#include <grp.h>
#include <limits.h>
#include <linux/openat2.h>
#include <pwd.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>

int csystem_become_private(void) {
  const gid_t own = getgid();
  // The saved one too, or it could be taken again. A change of ids makes it as dumpable as fs.suid_dumpable says.
  if (getegid() != own && setresgid(own, own, own) != 0) return -1;
  return prctl(PR_SET_DUMPABLE, 0, 0, 0, 0);
}

int csystem_open_as(const char *user, const char *path) {
  const struct passwd *entry = getpwnam(user);
  const int count = getgroups(0, NULL);
  gid_t *groups = calloc(count > 0 ? (size_t)count : 1, sizeof *groups);
  if (!entry || !groups || count < 0 || getgroups(count, groups) != count) {
    free(groups);
    errno = EPERM;
    return -1;
  }
  const uid_t root = geteuid();
  const gid_t group = getegid();
  int fd = -1;
  int error = EPERM;
  // Only the effective ones: for a signal or ptrace(2) of that user's the process stays root's.
  if (initgroups(entry->pw_name, entry->pw_gid) == 0 && setresgid(-1, entry->pw_gid, -1) == 0 &&
      setresuid(-1, entry->pw_uid, -1) == 0) {
    // The open of a FIFO waits for who writes to it, which may be nobody ever.
    fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
    error = errno;
  }
  if (setresuid(-1, root, -1) != 0 || setresgid(-1, group, -1) != 0 || setgroups((size_t)count, groups) != 0 ||
      csystem_become_private() != 0) {
    if (fd >= 0) close(fd);
    fd = -1;
    error = EPERM;
  }
  free(groups);
  errno = error;
  return fd;
}

int csystem_unmount(const char *path, uint32_t device, int lazily) {
  const char *slash = strrchr(path, '/');
  char folder[PATH_MAX], place[NAME_MAX + 32];
  const size_t length = slash ? (size_t)(slash - path) : 0;
  if (!slash || length >= sizeof folder || strlen(slash + 1) > NAME_MAX) {
    errno = EINVAL;
    return -1;
  }
  memcpy(folder, path, length);
  strcpy(folder + length, length == 0 ? "/" : "");
  struct open_how how = {.flags = O_PATH | O_DIRECTORY | O_CLOEXEC, .resolve = RESOLVE_NO_SYMLINKS};
  const int parent = (int)syscall(SYS_openat2, AT_FDCWD, folder, &how, sizeof how);
  if (parent < 0) return -1;
  snprintf(place, sizeof place, "/proc/self/fd/%d/%s", parent, slash + 1);
  // Of a mask of 0 the kernel asks no filesystem, which may be dead or hang: it tells the device alone.
  struct statx status;
  int result = statx(parent, slash + 1, AT_SYMLINK_NOFOLLOW | AT_NO_AUTOMOUNT | AT_STATX_DONT_SYNC, 0, &status);
  if (result == 0 && (status.stx_dev_major != 0 || status.stx_dev_minor != device)) {
    errno = ESTALE;
    result = -1;
  }
  if (result == 0) result = umount2(place, UMOUNT_NOFOLLOW | (lazily ? MNT_DETACH : 0));
  const int error = errno;
  close(parent);
  errno = error;
  return result;
}

int csystem_make_memory_file(const char *name) { return memfd_create(name, MFD_ALLOW_SEALING); }

int csystem_seal_memory_file(int file) {
  return fcntl(file, F_ADD_SEALS, F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE);
}
