#include "server.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <linux/close_range.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "complain.h"
#include "link.h"

enum { SERVER_LINK = 3 };  // the server's end, in the server
enum { NOGROUP = 65534 };  // owns nothing: the kernel's fs.overflowgid

void hide_from_others(void) { prctl(PR_SET_DUMPABLE, 0, 0, 0, 0); }

static void take_environment(const struct settings *settings) {
  // What names root's folders must not lead the user's server there.
  static const char *const roots[] = {"XDG_DATA_HOME",  "XDG_CONFIG_HOME", "XDG_CACHE_HOME",
                                      "XDG_STATE_HOME", "XDG_RUNTIME_DIR", "XDG_SESSION_ID"};
  for (size_t i = 0; i < sizeof roots / sizeof *roots; i++) unsetenv(roots[i]);
  setenv("HOME", settings->home, 1);
  setenv("SHELL", settings->shell, 1);
  setenv("USER", settings->user, 1);
  setenv("LOGNAME", settings->user, 1);
}

// In the child: never returns.
static void become_server(const struct settings *settings, int link) {
  if (settings->user) {
    // A program that exec starts can be seized by others of its user (ptrace, pidfd_getfd) until it says that it must
    // not be, and the server gets /dev/fuse. But exec makes it undumpable from its first instruction when its effective
    // group is not its real one. So that group is one without power; the server's main takes its own back.
    const gid_t other = settings->gid == NOGROUP ? NOGROUP - 1 : NOGROUP;
    if (initgroups(settings->user, settings->gid) != 0 || setresgid(settings->gid, other, other) != 0 ||
        setresuid(settings->uid, settings->uid, settings->uid) != 0) {
      complain("cannot become the user %s: %s", settings->user, strerror(errno));
      _exit(1);
    }
    hide_from_others();  // the change of ids may have undone it (fs.suid_dumpable)
    take_environment(settings);
  }
  setpgid(0, 0);  // ^C at the terminal is for the helper, which passes it on once
  // With a process group of its own it would be stopped for writing to a terminal that has `stty tostop` set.
  signal(SIGTTOU, SIG_IGN);
  signal(SIGPIPE, SIG_DFL);
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, NULL);

  int null = open("/dev/null", O_RDWR | O_CLOEXEC);
  int kept = fcntl(link, F_DUPFD_CLOEXEC, 10);  // out of the way of 3, which it may be itself
  if (null < 0 || kept < 0 || dup2(null, STDIN_FILENO) < 0 || dup2(kept, SERVER_LINK) < 0 ||
      close_range(SERVER_LINK + 1, ~0U, CLOSE_RANGE_CLOEXEC) != 0) {
    complain("cannot prepare the server's descriptors: %s", strerror(errno));
    _exit(1);
  }
  char descriptor[16];
  snprintf(descriptor, sizeof descriptor, "%d", SERVER_LINK);
  execl(settings->server, "mediafs", "serve", "--helper-fd", descriptor, (char *)NULL);
  complain("cannot run %s: %s", settings->server, strerror(errno));
  _exit(1);
}

pid_t start_server(const struct settings *settings, int *link) {
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0) {
    complain("cannot make a socket pair: %s", strerror(errno));
    return -1;
  }
  pid_t server = fork();
  if (server < 0) {
    complain("cannot start the server: %s", strerror(errno));
    close(ends[0]);
    close(ends[1]);
    return -1;
  }
  if (server == 0) become_server(settings, ends[1]);
  close(ends[1]);
  *link = ends[0];
  // They fit into the socket's buffer. One that cannot be sent means that the server is gone, which its end will tell.
  if (link_send(*link, MESSAGE_OPTIONS, PROTOCOL_VERSION, NULL, 0, settings->options_fd) == 0 &&
      (settings->input_fd < 0 || link_send(*link, MESSAGE_INPUT, 0, NULL, 0, settings->input_fd) == 0))
    link_send(*link, MESSAGE_START, 0, settings->mountpoint, strlen(settings->mountpoint), -1);
  return server;
}
