#define FUSE_USE_VERSION 314
#include "mounting.h"

#include <errno.h>
#include <fcntl.h>
#include <fuse3/fuse_lowlevel.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "complain.h"
#include "mount_table.h"
#include "places.h"

// libfuse makes getuid() and getgid() the owner of the mount. This changes only the real ids: another user becomes the
// owner, and the process keeps root's capabilities, which belong to the effective id.
static int set_real_ids(uid_t uid, gid_t gid) {
  // By syscall, of this thread alone: libc would wait until each thread has changed, and one may wait for the user.
  if (syscall(SYS_setresgid, gid, -1, -1) != 0 || syscall(SYS_setresuid, uid, -1, -1) != 0) {
    complain("cannot act for the user: %s", strerror(errno));
    return -1;
  }
  return 0;
}

// libfuse calls this, not libc's, when it looks at /etc/mtab for a mount of another user: of this thread alone, too.
int setreuid(uid_t real, uid_t effective) { return (int)syscall(SYS_setreuid, real, effective); }

// A folder, held by a descriptor of its parent. A process that renames folders of the path can put neither another
// folder nor a symbolic link in its place.
struct place {
  int parent;
  const char *name;
};

// False with errno if the path does not exist or contains a symbolic link.
static bool hold(const char *path, struct place *place) {
  place->parent = open_parent(path, &place->name);
  return place->parent >= 0;
}

// Identifies the mount that is on top at a place. Only the kernel answers, not the filesystem, which may be dead or
// hang.
static bool identify(const struct place *place, struct mount *mount) {
  struct statx status;
  const int flags = AT_SYMLINK_NOFOLLOW | AT_NO_AUTOMOUNT | AT_STATX_DONT_SYNC;
  if (statx(place->parent, place->name, flags, 0, &status) != 0) return false;
  if (!(status.stx_mask & STATX_MNT_ID)) {
    errno = ENOSYS;  // Linux before 5.8
    return false;
  }
  mount->id = status.stx_mnt_id;
  mount->device = status.stx_dev_minor;
  const bool has_unique = statx(place->parent, place->name, flags, MOUNT_ID_UNIQUE, &status) == 0 &&
                          status.stx_mask & MOUNT_ID_UNIQUE;
  mount->unique = has_unique ? status.stx_mnt_id : 0;
  return true;
}

// Unmounts as root. It never follows the last component, and holds the folder that contains it.
static int unmount_place(const struct place *place, int how) {
  char path[NAME_MAX + 32];
  if ((size_t)snprintf(path, sizeof path, "/proc/self/fd/%d/%s", place->parent, place->name) >= sizeof path) {
    errno = ENAMETOOLONG;
    return -1;
  }
  return umount2(path, UMOUNT_NOFOLLOW | how);
}

// Waits for a child. Returns its status (wait(2)), or -1.
static int await_child(pid_t child) {
  int status;
  for (;;) {
    const pid_t found = waitpid(child, &status, WUNTRACED);
    if (found < 0 && errno != EINTR) return -1;
    if (found < 0) continue;
    if (!WIFSTOPPED(status)) return status;
    kill(child, SIGKILL);  // it may be another user's, who can stop it: nobody waits for that
  }
}

static bool succeeded(int status) { return status != -1 && WIFEXITED(status) && WEXITSTATUS(status) == 0; }

// Runs a program from PATH. Returns whether it ended with 0.
static bool run(const char *const words[]) {
  pid_t child = fork();
  if (child < 0) {
    complain("cannot start %s: %s", words[0], strerror(errno));
    return false;
  }
  if (child == 0) {
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    execvp(words[0], (char *const *)words);
    complain("cannot run %s: %s", words[0], strerror(errno));
    _exit(127);
  }
  int status = await_child(child);
  if (status != -1 && WIFSIGNALED(status)) complain("%s was killed by signal %d", words[0], WTERMSIG(status));
  return succeeded(status);
}

static bool has_mtab(void) { return access("/etc/mtab", F_OK) == 0; }

// Both programs are setuid root and unmount only what their caller mounted. fusermount3 looks that up in /etc/mtab, and
// umount in /proc, so without /etc/mtab (a bare container) only umount works. On failure, stderr says why.
static bool unmount_by_program(const char *how, const char *path) {
  const bool lazily = strchr(how, 'z') != NULL;
  if (!has_mtab())
    return run((const char *const[]){"umount", lazily ? "-l" : "-q", "--", path, NULL});
  return run((const char *const[]){"fusermount3", how, "--", path, NULL});
}

void abort_connection(const struct mount *mount) {
  char path[PATH_MAX];
  struct place place;
  // The file is there where the control filesystem is mounted, and belongs to the mount's owner.
  snprintf(path, sizeof path, "/sys/fs/fuse/connections/%u/abort", mount->device);
  const int file = open(path, O_WRONLY | O_CLOEXEC);
  bool aborted = file >= 0 && write(file, "1", 1) == 1;
  if (file >= 0) close(file);
  if (!aborted && geteuid() == 0 && find_mount(mount->id, mount->device, path, sizeof path) && hold(path, &place)) {
    unmount_place(&place, MNT_FORCE);  // it aborts first, also where it then fails because the mount is busy
    close(place.parent);
    aborted = true;
  }
  if (aborted) return;
  const int error = errno;
  if (find_mount(mount->id, mount->device, path, sizeof path)) {
    complain("cannot abort the mount: run `umount -f %s` as root", path);
  } else {
    complain("cannot abort the connection of a mount that is unmounted already: %s", strerror(error));
  }
}

// Unmounts the new mount again, also if it is busy.
static void undo_mount(const struct settings *settings, const struct mount *mount) {
  char path[PATH_MAX];
  struct place place;
  if (geteuid() != 0) {
    unmount_by_program("-uz", settings->mountpoint);
  } else if (find_mount(mount->id, mount->device, path, sizeof path) && hold(path, &place)) {
    unmount_place(&place, MNT_DETACH);
    close(place.parent);
  }
}

// Finds the mount that is on top of the mountpoint now, if it is not `before`. Root goes from the folder itself to its
// parent, so that no rename of a folder of the path, and no mount over one, leads elsewhere.
static bool find_new(const struct settings *settings, int folder, const struct mount *before, struct mount *mount) {
  struct place place;
  char path[PATH_MAX], held[32];
  if (geteuid() == 0) {
    snprintf(held, sizeof held, "/proc/self/fd/%d", folder);
    const ssize_t length = readlink(held, path, sizeof path - 1);
    if (length <= 0) return false;
    path[length] = 0;
    const char *const slash = strrchr(path, '/');
    if (!slash) return false;
    place.name = slash + 1;
    place.parent = openat(folder, "..", O_PATH | O_DIRECTORY | O_CLOEXEC);
    // A server may refuse root the folder itself (NFS): then only the path leads there.
    if (place.parent < 0 && (errno != EACCES || !hold(path, &place))) return false;
  } else if (!hold(settings->mountpoint, &place)) {
    return false;
  }
  char where[PATH_MAX];
  const bool found = identify(&place, mount) && mount->id != before->id &&
                     find_mount(mount->id, mount->device, where, sizeof where);
  close(place.parent);
  return found;
}

// How often the helper looks for a mount that its path does not lead to, and the pause between in microseconds: another
// process renames a folder of the path to and fro, or another mount lies over it.
enum { HIDDEN_ATTEMPTS = 25, HIDDEN_PAUSE = 200000 };

// Mounts at `folder`. Root mounts through the folder's descriptor, whatever is at its path by now. An ordinary user's
// fusermount3 takes the path, and checks links and rights itself. Sets the mount's numbers. Returns 0, or -1 after a
// message on stderr.
static int mount_at(const struct settings *settings, struct fuse_session *session, int folder,
                    const struct mount *before, struct mount *mount) {
  const bool root = geteuid() == 0;
  const bool other = settings->user != NULL;
  char held[32];
  snprintf(held, sizeof held, "/proc/self/fd/%d", folder);
  if (other && set_real_ids(settings->uid, settings->gid) != 0) return -1;
  const int mounted = fuse_session_mount(session, root ? held : settings->mountpoint);
  const int restored = other ? set_real_ids(0, 0) : 0;
  if (mounted != 0) {
    complain("cannot mount at %s", settings->mountpoint);
    return -1;
  }
  bool found = false;
  for (int attempt = 1; !(found = find_new(settings, folder, before, mount)) && attempt < HIDDEN_ATTEMPTS; attempt++)
    usleep(HIDDEN_PAUSE);
  if (!found)
    complain("cannot find the new mount at %s: if it is in /proc/self/mountinfo, unmount it", settings->mountpoint);
  if (found && restored == 0) return 0;
  if (found || !root) undo_mount(settings, mount);
  return -1;
}

int mount_filesystem(const struct settings *settings, struct mount *mount) {
  static const struct fuse_lowlevel_ops none;  // this session only mounts; the server has its own
  struct fuse_args arguments = FUSE_ARGS_INIT(0, NULL);
  int result = -1;
  struct place place = {.parent = -1};
  struct mount before;
  int folder = -1;
  mount->device_fd = -1;
  struct fuse_session *session = NULL;
  // A server that does not run as root could otherwise serve setuid root files and devices. mount(8) adds
  // `exec,suid,dev` to `user=`. Of two contradicting options, libfuse takes the last.
  const char *forced = settings->uid != 0 ? "nosuid,nodev" : "";
  if (fuse_opt_add_arg(&arguments, "mediafs") != 0 || fuse_opt_add_arg(&arguments, "-o") != 0 ||
      fuse_opt_add_arg(&arguments, settings->mount_options) != 0 ||
      (*forced && (fuse_opt_add_arg(&arguments, "-o") != 0 || fuse_opt_add_arg(&arguments, forced) != 0))) {
    complain("not enough memory to mount");
    goto done;
  }
  session = fuse_session_new(&arguments, &none, sizeof none, NULL);
  if (!session) {
    complain("libfuse rejects the mount options %s", settings->mount_options);
    goto done;
  }
  if (hold(settings->mountpoint, &place))
    folder = openat(place.parent, place.name, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  if (folder < 0 || !identify(&place, &before)) {
    const bool link = errno == ELOOP || (place.parent >= 0 && errno == ENOTDIR);
    complain("cannot mount at %s: %s%s", settings->mountpoint, strerror(errno),
             link ? " (its path now contains a symbolic link)" : "");
    goto done;
  }
  if (mount_at(settings, session, folder, &before, mount) != 0) goto done;
  mount->device_fd = fcntl(fuse_session_fd(session), F_DUPFD_CLOEXEC, 10);
  if (mount->device_fd < 0) {
    complain("cannot keep /dev/fuse open: %s", strerror(errno));
    undo_mount(settings, mount);
    goto done;
  }
  result = 0;

done:
  if (session) fuse_session_destroy(session);  // closes its own descriptor; ours keeps the connection
  fuse_opt_free_args(&arguments);
  if (folder >= 0) close(folder);
  if (place.parent >= 0) close(place.parent);
  return result;
}

// After an unmount or an abort, poll of /dev/fuse reports an error.
bool is_connected(const struct mount *mount) {
  struct pollfd device = {.fd = mount->device_fd};
  return poll(&device, 1, 0) == 0;
}

bool is_there(const struct mount *mount) {
  char path[PATH_MAX];
  struct place place;
  struct mount top;
  if (!find_mount(mount->id, mount->device, path, sizeof path)) return false;
  if (mount->unique == 0 || !hold(path, &place)) return true;
  // Another mount may lie over it: then its own is not seen.
  const bool is_other = identify(&place, &top) && top.id == mount->id && top.unique != mount->unique;
  close(place.parent);
  return !is_other;
}

// Whether stat fails with "Transport endpoint is not connected". A child asks, with all ids of the owner, because the
// kernel refuses other users before it looks at the connection.
static bool is_dead(const struct settings *settings, const struct place *place) {
  pid_t child = fork();
  if (child < 0) return false;
  if (child == 0) {
    struct statx unused;
    if (settings->user && (setresgid(settings->gid, settings->gid, settings->gid) != 0 ||
                           setresuid(settings->uid, settings->uid, settings->uid) != 0))
      _exit(2);
    // Forced, because the kernel would otherwise answer with the attributes of the root that it has cached.
    const int flags = AT_SYMLINK_NOFOLLOW | AT_STATX_FORCE_SYNC;
    int result = statx(place->parent, place->name, flags, STATX_MODE, &unused);
    _exit(result != 0 && errno == ENOTCONN ? 0 : 1);
  }
  return succeeded(await_child(child));
}

// Finds the helper's own mount if it still exists and is on top, also after another process renamed a folder of its
// path. If it returns true, the caller closes `place->parent`. The kernel reuses a free device number at once. So
// without a connection (after an unmount, or an abort through /sys/fs/fuse), only a dead mount with that number is the
// helper's.
static bool find_ours(const struct settings *settings, const struct mount *mount, char *path, struct place *place) {
  struct mount top;
  if (!find_mount(mount->id, mount->device, path, PATH_MAX) || !hold(path, place)) return false;
  if (identify(place, &top) && top.id == mount->id && top.device == mount->device &&
      (is_connected(mount) || is_dead(settings, place)))
    return true;
  close(place->parent);
  return false;
}

// Whether the mount exists although find_ours() does not reach it. Only while the connection is alive does its number
// surely belong to the helper's mount.
static bool is_hidden(const struct mount *mount, char *path) {
  return is_connected(mount) && find_mount(mount->id, mount->device, path, PATH_MAX);
}

// How often the helper runs a program for a busy mount before it gives up, and the pause between in microseconds: the
// program may be killed, or not start because memory or processes run out.
enum { UNMOUNT_ATTEMPTS = 5, UNMOUNT_PAUSE = 200000 };

static void unmount_as_user(const struct settings *settings, const struct mount *mount, char *path) {
  if (unmount_by_program("-uq", path)) return;
  struct place place;
  for (int attempt = 1; find_ours(settings, mount, path, &place); attempt++) {
    close(place.parent);
    if (unmount_by_program("-uz", path)) return;
    if (attempt == UNMOUNT_ATTEMPTS) {
      complain("cannot unmount %s: it stays as a dead mount until you run: %s '%s'", path,
               has_mtab() ? "fusermount3 -uz" : "umount -l", path);
      return;
    }
    usleep(UNMOUNT_PAUSE);
  }
}

void unmount_filesystem(const struct settings *settings, struct mount *mount) {
  if (mount->device_fd < 0) return;
  char path[PATH_MAX];
  struct place place;
  bool found = find_ours(settings, mount, path, &place);
  for (int attempt = 1; !found && is_hidden(mount, path); attempt++) {
    if (attempt == HIDDEN_ATTEMPTS) {
      complain("cannot unmount %s: its path does not lead to it now. It stays as a dead mount until you unmount it",
               path);
      break;
    }
    usleep(HIDDEN_PAUSE);
    found = find_ours(settings, mount, path, &place);
  }
  if (found) {
    if (geteuid() != 0) {
      unmount_as_user(settings, mount, path);
    } else if (unmount_place(&place, 0) != 0 && (errno != EBUSY || unmount_place(&place, MNT_DETACH) != 0)) {
      complain("cannot unmount %s: %s", path, strerror(errno));
    }
    close(place.parent);
  }
  close(mount->device_fd);
  mount->device_fd = -1;
}
