#define _GNU_SOURCE
#include "CSystem.h"
#include <linux/close_range.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/syscall.h>

int csystem_adopt_orphans(void) { return prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); }

int csystem_set_death_signal(int number) { return prctl(PR_SET_PDEATHSIG, number, 0, 0, 0); }

int csystem_open_child_watch(void) {
  sigset_t children;
  sigemptyset(&children);
  sigaddset(&children, SIGCHLD);
  if (sigprocmask(SIG_BLOCK, &children, NULL) != 0) return -1;
  return signalfd(-1, &children, SFD_CLOEXEC | SFD_NONBLOCK);
}

pid_t csystem_start_program(char *const *words, int input, int output, int error) {
  const pid_t launcher = getpid();
  const pid_t child = fork();
  if (child != 0) return child;
  if (csystem_set_death_signal(SIGKILL) != 0 || getppid() != launcher) _exit(127);
  setsid();
  for (int number = 1; number < NSIG; number++) signal(number, SIG_DFL);
  sigset_t none;
  sigemptyset(&none);
  if (dup2(input, STDIN_FILENO) < 0 || dup2(output, STDOUT_FILENO) < 0 || dup2(error, STDERR_FILENO) < 0 ||
      syscall(SYS_close_range, STDERR_FILENO + 1, ~0U, CLOSE_RANGE_CLOEXEC) != 0 ||
      sigprocmask(SIG_SETMASK, &none, NULL) != 0)
    _exit(127);
  execv(words[0], words);
  dprintf(STDERR_FILENO, "cannot run %s: %s\n", words[0], strerror(errno));
  _exit(127);
}
