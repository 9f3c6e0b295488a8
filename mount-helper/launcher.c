#include "launcher.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "complain.h"
#include "run.h"

int start_launcher(const struct settings *settings, int program) {
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0) {
    complain("cannot create a socket pair: %s", strerror(errno));
    return -1;
  }
  const pid_t child = fork();
  if (child == 0) {
    // It reads the options by itself: what it runs, the server cannot change.
    const int passed[] = {ends[1], settings->options_fd};
    char *const words[] = {"mediafs", "launch", "--server-fd", "3", "--options-fd", "4", NULL};
    char text[512];
    run_mediafs(settings, program, words, passed, 2, text, sizeof text);
    complain("%s", text);
    _exit(1);
  }
  if (child < 0) complain("cannot start the launcher: %s", strerror(errno));
  close(ends[1]);
  if (child > 0) return ends[0];
  close(ends[0]);
  return -1;
}
