#include "guard.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "complain.h"

// Waits for the helper's end, also if it is killed in this moment, and unmounts.
static void guard(const struct settings *settings, struct mount mount, int helper) {
  setpgid(0, 0);  // ^C at the terminal reaches only the helper
  prctl(PR_SET_NAME, "mount-guard");
  struct pollfd ended = {.fd = helper, .events = POLLIN};
  while (poll(&ended, 1, -1) < 0 && errno == EINTR) continue;
  complain("the mount helper was killed: its mount ends");
  // A server that hangs would keep its readers waiting: a lazy unmount answers none of them.
  if (is_connected(&mount)) abort_connection(&mount);
  unmount_filesystem(settings, &mount);
  _exit(0);
}

pid_t start_guard(const struct settings *settings, const struct mount *mount) {
  const int self = (int)syscall(SYS_pidfd_open, getpid(), 0);
  const pid_t child = self < 0 ? -1 : fork();
  if (child < 0) complain("cannot guard the mount: %s", strerror(errno));
  if (child == 0) {
    // It keeps no descriptor of the caller's or the server's, only /dev/fuse, which tells whether the mount lives.
    const unsigned low = (unsigned)(self < mount->device_fd ? self : mount->device_fd);
    const unsigned high = (unsigned)(self < mount->device_fd ? mount->device_fd : self);
    if (low > STDERR_FILENO + 1) close_range(STDERR_FILENO + 1, low - 1, 0);
    if (high > low + 1) close_range(low + 1, high - 1, 0);
    close_range(high + 1, ~0U, 0);
    guard(settings, *mount, self);
  }
  if (self >= 0) close(self);
  return child;
}

void end_guard(pid_t guard) {
  if (guard <= 0) return;
  kill(guard, SIGKILL);
  while (waitpid(guard, NULL, 0) < 0 && errno == EINTR) continue;
}
