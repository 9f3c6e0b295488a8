#include "waker.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/capability.h>
#include <linux/mount.h>
#include <linux/openat2.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "kinds.h"
#include "mount_table.h"
#include "places.h"
#include "server.h"

// Whether a folder is of the mount itself, and not of a later one with the same numbers. Only the kernel answers.
static bool is_of(const struct mount *mount, int folder) {
  if (mount->unique == 0) return true;
  struct statx status;
  return statx(folder, "", AT_EMPTY_PATH | AT_STATX_DONT_SYNC, MOUNT_ID_UNIQUE, &status) == 0 &&
         status.stx_mnt_id == mount->unique;
}

// The folder of the mount, by the mount's number. Only the kernel answers.
static int open_top(const struct mount *mount) {
  char path[PATH_MAX];
  const char *name;
  uint64_t id;
  const bool is_listed = find_mount(mount->id, mount->device, path, sizeof path);
  const int parent = is_listed ? open_parent(path, &name) : -1;
  const int top = parent < 0 ? -1 : openat(parent, name, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  if (top >= 0 && find_mount_of(top, &id) && id == mount->id && is_of(mount, top)) return top;
  errno = ENODEV;
  return -1;
}

// Makes the filesystem writable (`flag` is "rw"), or read-only ("ro"). The mount is read-only all the time. While the
// filesystem is writable, the kernel takes the times of what is read for stale, and asks the server for them again.
static bool reconfigure(int top, const char *flag) {
  const int context = (int)syscall(SYS_fspick, top, "", FSPICK_EMPTY_PATH | FSPICK_CLOEXEC);
  const bool is_done = context >= 0 && syscall(SYS_fsconfig, context, FSCONFIG_SET_FLAG, flag, NULL, 0) == 0 &&
                       syscall(SYS_fsconfig, context, FSCONFIG_CMD_RECONFIGURE, NULL, NULL, 0) == 0;
  const int error = errno;
  if (context >= 0) close(context);  // it keeps the filesystem, also when the mount has gone
  errno = error;
  return is_done;
}

// The folder of a copy of the mount that no path leads to and that may be written through. It ends with this process.
// An ordinary user's mount may be written through itself.
static int open_root(const struct mount *mount) {
  const int top = open_top(mount);
  if (top >= 0 && geteuid() != 0) return top;
  if (top < 0 || !reconfigure(top, "rw")) return -1;
  const int copy = (int)syscall(SYS_open_tree, top, "", OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC | AT_EMPTY_PATH);
  close(top);  // it keeps the mount busy
  struct mount_attr change = {.attr_clr = MOUNT_ATTR_RDONLY};
  if (copy < 0 || syscall(SYS_mount_setattr, copy, "", AT_EMPTY_PATH, &change, sizeof change) != 0) return -1;
  return copy;
}

// The kernel lets in only the owner of a mount without allow_other. The waker becomes that user, and keeps one right of
// root's: whatever the modes of the mount say, it may write in folders. An ordinary user's has no other rights to begin
// with. It has no descriptor but the mount's.
static bool drop_rights(const struct settings *settings) {
  struct __user_cap_header_struct head = {.version = _LINUX_CAPABILITY_VERSION_3};
  struct __user_cap_data_struct rights[2] = {
      {.effective = 1U << CAP_DAC_OVERRIDE, .permitted = 1U << CAP_DAC_OVERRIDE}};
  if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) return false;
  if (geteuid() != 0) return true;
  return prctl(PR_SET_KEEPCAPS, 1, 0, 0, 0) == 0 && syscall(SYS_setgroups, 0, NULL) == 0 &&
         syscall(SYS_setresgid, settings->gid, settings->gid, settings->gid) == 0 &&
         syscall(SYS_setresuid, settings->uid, settings->uid, settings->uid) == 0 &&
         syscall(SYS_capset, &head, rights) == 0;
}

// A folder below the mount's root. Whatever the server answers, no path leads out.
static int open_below(int root, const char *path) {
  struct open_how how = {
      .flags = O_PATH | O_DIRECTORY | O_CLOEXEC,
      .resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS | RESOLVE_NO_XDEV};
  return (int)syscall(SYS_openat2, root, *path ? path : ".", &how, sizeof how);
}

static bool is_name(const char *text) {
  return *text && !strchr(text, '/') && strcmp(text, ".") != 0 && strcmp(text, "..") != 0;
}

// Whether the rest can go on: the name, or its folder, has come or gone meanwhile, or another mount is on top of it.
static bool is_harmless(int error) {
  static const int harmless[] = {ENOENT, EEXIST,    ESTALE, ENOTDIR, EISDIR,
                                 ENOTEMPTY, EBUSY, EXDEV,  EACCES,  ENAMETOOLONG};
  for (size_t i = 0; i < sizeof harmless / sizeof *harmless; i++)
    if (error == harmless[i]) return true;
  return false;
}

// Makes a file as one is made that is copied there: opened for writing, and closed. Many programs take a new file only
// then, because until then somebody may still write to it.
static int make_file(int folder, const char *name) {
  const int file = openat(folder, name, O_CREAT | O_EXCL | O_WRONLY | O_NOFOLLOW | O_CLOEXEC, 0444);
  return file < 0 ? -1 : close(file);
}

static int carry_out_one(int root, int *folder, char order, const char *text) {
  struct stat unused;
  if (order == 'p') {
    if (*folder >= 0) close(*folder);
    *folder = open_below(root, text);
    return *folder < 0 ? -1 : 0;
  }
  if (order == 't' ? *text != 0 : !is_name(text)) {
    errno = EINVAL;
    return -1;
  }
  if (order == 'w') return fstatat(root, text, &unused, AT_SYMLINK_NOFOLLOW);
  if (*folder < 0) return 0;
  switch (order) {
    case 'c': return make_file(*folder, text);
    case 'm': return mkdirat(*folder, text, 0755);
    case 'u': return unlinkat(*folder, text, 0);
    case 'r': return unlinkat(*folder, text, AT_REMOVEDIR);
    case 't': return utimensat(*folder, ".", NULL, 0);
    case 'a': return utimensat(*folder, text, NULL, AT_SYMLINK_NOFOLLOW);
  }
  errno = EINVAL;
  return -1;
}

static int carry_out(int root, const char *orders, size_t length) {
  const char *const end = orders + length;
  int folder = -1;
  while (orders < end) {
    const char *const stop = memchr(orders, 0, (size_t)(end - orders));
    if (!stop || stop == orders) return EINVAL;
    if (carry_out_one(root, &folder, *orders, orders + 1) != 0 && !is_harmless(errno)) return errno;
    orders = stop + 1;
  }
  return 0;
}

void become_waker(const struct settings *settings, const struct mount *mount, const char *orders, size_t length) {
  prctl(PR_SET_NAME, "mount-waker");
  const int root = open_root(mount);
  if (root < 0 || !drop_rights(settings)) _exit(errno);
  hide_from_others();  // again, because the change of ids may have undone it (fs.suid_dumpable)
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  _exit(carry_out(root, orders, length));
}

void become_restorer(const struct mount *mount) {
  prctl(PR_SET_NAME, "mount-waker");
  const int top = open_top(mount);
  _exit(top >= 0 && reconfigure(top, "ro") ? 0 : errno);
}
