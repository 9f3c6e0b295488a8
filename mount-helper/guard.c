#include "guard.h"

#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "complain.h"
#include "descriptors.h"

// Waits for the end of the helper's main thread, also if it is killed in this moment, and unmounts. Another thread of
// the helper may wait for a filesystem of the user's, and outlive it: a pidfd tells of the last one.
static void guard(const struct settings *settings, struct mount mount, pid_t helper) {
  sigset_t death;
  sigemptyset(&death);
  sigaddset(&death, SIGUSR1);
  sigprocmask(SIG_BLOCK, &death, NULL);
  setpgid(0, 0);  // ^C at the terminal reaches only the helper
  prctl(PR_SET_NAME, "mount-guard");
  prctl(PR_SET_PDEATHSIG, SIGUSR1);
  while (getppid() == helper && sigwaitinfo(&death, NULL) < 0) continue;
  complain_on_a_thread();
  // A server that hangs would keep its readers waiting: a lazy unmount answers none of them.
  if (is_connected(&mount)) abort_connection(&mount);
  unmount_filesystem(settings, &mount);
  complain("the mount helper was killed: its mount has ended");
  complain_directly();
  _exit(0);
}

pid_t start_guard(const struct settings *settings, const struct mount *mount) {
  const pid_t helper = getpid();
  const pid_t child = fork();
  if (child < 0) complain("cannot guard the mount: %s", strerror(errno));
  if (child == 0) {
    // It keeps no descriptor of the caller's or the server's, only /dev/fuse, which tells whether the mount lives.
    close_all_but(&mount->device_fd, 1);
    guard(settings, *mount, helper);
  }
  return child;
}

void end_guard(pid_t guard) {
  if (guard <= 0) return;
  kill(guard, SIGKILL);
  while (waitpid(guard, NULL, 0) < 0 && errno == EINTR) continue;
}
