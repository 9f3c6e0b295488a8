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
#include <sys/wait.h>
#include <unistd.h>

#include "mount_table.h"
#include "places.h"

// libfuse names getuid() and getgid() as the mount's owner. Changing only the real ids names another and keeps root's
// capabilities, which go with the effective id.
static int set_real_ids(uid_t uid, gid_t gid) {
  if (setresgid(gid, (gid_t)-1, (gid_t)-1) != 0 || setresuid(uid, (uid_t)-1, (uid_t)-1) != 0) {
    complain("cannot act for the user: %s", strerror(errno));
    return -1;
  }
  return 0;
}

// The mountpoint of a user for whom root mounts may lie in a folder of that user's, who may put a link in its place at
// any time: the folder is opened once, without following links, and mounted at through that descriptor. `path` gets its
// name.
static int hold_mountpoint(const struct settings *settings, char *path, size_t space) {
  int place = open_place(settings->mountpoint);
  if (place < 0) {
    complain("cannot mount at %s: %s%s", settings->mountpoint, strerror(errno),
             errno == ELOOP ? " (its path has a symbolic link in it now)" : "");
    return -1;
  }
  snprintf(path, space, "/proc/self/fd/%d", place);
  return place;
}

// Takes away what was just mounted, wherever its folder is by now.
static void undo_mount(struct fuse_session *session, int place) {
  if (place < 0) {
    fuse_session_unmount(session);
    return;
  }
  char link[32], path[PATH_MAX];
  snprintf(link, sizeof link, "/proc/self/fd/%d", place);
  ssize_t length = readlink(link, path, sizeof path - 1);
  if (length <= 0) return;
  path[length] = 0;
  if (mounted_device(path) != 0) umount2(path, UMOUNT_NOFOLLOW | MNT_DETACH);
}

int mount_filesystem(const struct settings *settings, struct mount *mount) {
  static const struct fuse_lowlevel_ops none;  // the server has its own session; this one only mounts
  struct fuse_args arguments = FUSE_ARGS_INIT(0, NULL);
  int result = -1;
  int place = -1;
  mount->device_fd = -1;
  struct fuse_session *session = NULL;
  if (fuse_opt_add_arg(&arguments, "mediafs") != 0 || fuse_opt_add_arg(&arguments, "-o") != 0 ||
      fuse_opt_add_arg(&arguments, settings->mount_options) != 0) {
    complain("not enough memory to mount");
    goto done;
  }
  session = fuse_session_new(&arguments, &none, sizeof none, NULL);
  if (!session) {
    complain("libfuse does not take the mount options %s", settings->mount_options);
    goto done;
  }
  const bool other = settings->user != NULL;
  char held[32];
  if (other && (place = hold_mountpoint(settings, held, sizeof held)) < 0) goto done;
  if (other && set_real_ids(settings->uid, settings->gid) != 0) goto done;
  const int mounted = fuse_session_mount(session, other ? held : settings->mountpoint);
  const int restored = other ? set_real_ids(0, 0) : 0;
  if (mounted != 0) {
    complain("cannot mount at %s", settings->mountpoint);
    goto done;
  }
  if (restored != 0) {
    undo_mount(session, place);
    goto done;
  }
  mount->device = mounted_device(settings->mountpoint);
  if (mount->device == 0) {
    complain("cannot find the mount at %s in /proc/self/mountinfo", settings->mountpoint);
    undo_mount(session, place);
    goto done;
  }
  mount->device_fd = fcntl(fuse_session_fd(session), F_DUPFD_CLOEXEC, 10);
  if (mount->device_fd < 0) {
    complain("cannot keep /dev/fuse open: %s", strerror(errno));
    undo_mount(session, place);
    goto done;
  }
  result = 0;

done:
  if (session) fuse_session_destroy(session);  // closes its own descriptor; ours keeps the connection
  fuse_opt_free_args(&arguments);
  if (place >= 0) close(place);
  return result;
}

// The child's status (wait(2)), or -1.
static int await_child(pid_t child) {
  int status;
  while (waitpid(child, &status, 0) < 0)
    if (errno != EINTR) return -1;
  return status;
}

static bool succeeded(int status) { return status != -1 && WIFEXITED(status) && WEXITSTATUS(status) == 0; }

// fusermount3 is setuid root and takes away only what its caller mounted. False when it did not: stderr says why,
// unless `how` is quiet.
static bool run_fusermount(const char *how, const char *mountpoint) {
  pid_t child = fork();
  if (child < 0) {
    complain("cannot start fusermount3: %s", strerror(errno));
    return false;
  }
  if (child == 0) {
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    execlp("fusermount3", "fusermount3", how, "--", mountpoint, (char *)NULL);
    complain("cannot run fusermount3: %s", strerror(errno));
    _exit(127);
  }
  int status = await_child(child);
  if (status != -1 && WIFSIGNALED(status)) complain("fusermount3 was killed by signal %d", WTERMSIG(status));
  return succeeded(status);
}

// Whether the kernel still has the connection: /dev/fuse reports an error once it is unmounted or aborted.
static bool connected(int device_fd) {
  struct pollfd device = {.fd = device_fd};
  return poll(&device, 1, 0) == 0;
}

// Whether stat says "Transport endpoint is not connected". Asked by a child that is the owner in every way: the kernel
// refuses all others before it looks at the connection.
static bool is_dead(const struct settings *settings) {
  pid_t child = fork();
  if (child < 0) return false;
  if (child == 0) {
    struct statx unused;
    if (settings->user && (setresgid(settings->gid, settings->gid, settings->gid) != 0 ||
                           setresuid(settings->uid, settings->uid, settings->uid) != 0))
      _exit(2);
    // By asking anew: what the kernel remembers of the root would do for stat(2), dead or not.
    int result = statx(AT_FDCWD, settings->mountpoint, AT_STATX_FORCE_SYNC, STATX_MODE, &unused);
    _exit(result != 0 && errno == ENOTCONN ? 0 : 1);
  }
  return succeeded(await_child(child));
}

// The mount that we made, still there and on top. A device number is given anew as soon as it is free, so without a
// connection (unmounted, or aborted through /sys/fs/fuse) only a dead mount of that number counts.
static bool is_ours(const struct settings *settings, const struct mount *mount) {
  if (mount->device == 0 || mounted_device(settings->mountpoint) != mount->device) return false;
  return connected(mount->device_fd) || is_dead(settings);
}

// From within its parent, reached without following links: a user who may rename that cannot lead root to another
// mount.
static int unmount_as_root(const char *mountpoint) {
  const char *name;
  int parent = open_parent(mountpoint, &name);
  if (parent < 0) return -1;
  int result = fchdir(parent);
  if (result == 0) result = umount2(name, UMOUNT_NOFOLLOW);
  if (result != 0 && errno == EBUSY) result = umount2(name, UMOUNT_NOFOLLOW | MNT_DETACH);
  const int error = errno;
  close(parent);
  if (chdir("/") != 0) complain("cannot leave the current folder: %s", strerror(errno));
  errno = error;
  return result;
}

// How often fusermount3 is run for a busy mount before that is left behind, and the pause between in microseconds: it
// may be killed, or not be started for want of memory or of a process.
enum { UNMOUNT_ATTEMPTS = 5, UNMOUNT_PAUSE = 200000 };

static void unmount_as_user(const struct settings *settings, const struct mount *mount) {
  if (run_fusermount("-uq", settings->mountpoint)) return;
  for (int attempt = 1; is_ours(settings, mount); attempt++) {
    if (run_fusermount("-uz", settings->mountpoint)) return;
    if (attempt == UNMOUNT_ATTEMPTS) {
      complain("cannot unmount %s: it stays as a dead mount until you run: fusermount3 -uz '%s'", settings->mountpoint,
               settings->mountpoint);
      return;
    }
    usleep(UNMOUNT_PAUSE);
  }
}

void unmount_filesystem(const struct settings *settings, struct mount *mount) {
  if (mount->device_fd < 0) return;
  if (is_ours(settings, mount)) {
    if (geteuid() != 0) {
      unmount_as_user(settings, mount);
    } else if (unmount_as_root(settings->mountpoint) != 0) {
      complain("cannot unmount %s: %s", settings->mountpoint, strerror(errno));
    }
  }
  close(mount->device_fd);
  mount->device_fd = -1;
}
