#include "server.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "complain.h"
#include "launcher.h"
#include "link.h"
#include "reception.h"
#include "relay.h"
#include "rights.h"
#include "run.h"

enum { SERVER_LINK = 3 };  // its end of the link, in the server

void hide_from_others(void) { prctl(PR_SET_DUMPABLE, 0, 0, 0, 0); }

static void take_environment(const struct settings *settings) {
  // These variables name folders of root's, which the user's server must not use.
  static const char *const roots[] = {"XDG_DATA_HOME",  "XDG_CONFIG_HOME", "XDG_CACHE_HOME",
                                      "XDG_STATE_HOME", "XDG_RUNTIME_DIR", "XDG_SESSION_ID"};
  for (size_t i = 0; i < sizeof roots / sizeof *roots; i++) unsetenv(roots[i]);
  setenv("HOME", settings->home, 1);
  setenv("SHELL", settings->shell, 1);
  setenv("USER", settings->user, 1);
  setenv("LOGNAME", settings->user, 1);
}

void begin_program(const struct settings *settings) {
  if (settings->user) {
    use_relay();
    if (become_user(settings) != 0) {
      complain("cannot become the user %s: %s", settings->user, strerror(errno));
      _exit(1);
    }
    hide_from_others();  // again, because the change of ids may have undone it (fs.suid_dumpable)
    take_environment(settings);
  }
  // A session of its own has no terminal: ^C reaches only the helper, which passes it on once.
  setsid();
  signal(SIGPIPE, SIG_DFL);
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, NULL);
}

// Turns the child into the server. Never returns.
static void become_server(const struct settings *settings, int program, int link) {
  begin_program(settings);
  // Before the filter, which lets the server start no process: the launcher has to start programs.
  int launcher = settings->launcher ? start_launcher(settings, program) : -1;
  if (settings->user && forbid_calls() != 0) {
    complain("cannot restrict the server's system calls: %s", strerror(errno));
    _exit(1);
  }
  const int passed[] = {link, launcher};
  char *words[] = {"mediafs", "serve", "--helper-fd", "3", NULL, NULL, NULL};
  if (launcher >= 0) {
    words[4] = "--launcher-fd";
    words[5] = "4";
  }
  char text[512];
  run_mediafs(settings, program, words, passed, launcher >= 0 ? 2 : 1, text, sizeof text);
  link_send(SERVER_LINK, MESSAGE_FAILED, 0, text, strlen(text), -1);
  complain("%s", text);
  _exit(1);
}

pid_t start_server(const struct settings *settings, int program, int session, uint32_t before, const char *kept,
                   const struct hold *hold, bool managed, int *link, int *messages) {
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0) {
    complain("cannot create a socket pair: %s", strerror(errno));
    return -1;
  }
  *messages = start_reception(ends[0], settings->user != NULL);
  pid_t server = *messages < 0 ? -1 : fork();
  if (server < 0) {
    if (*messages >= 0) {
      complain("cannot start the server: %s", strerror(errno));
      close(*messages);
      *messages = -1;
    }
    close(ends[0]);
    close(ends[1]);
    return -1;
  }
  if (server == 0) become_server(settings, program, ends[1]);
  close(ends[1]);
  // A server that reads nothing must not hold the helper.
  fcntl(ends[0], F_SETFL, O_NONBLOCK);
  *link = ends[0];
  // The messages fit into the socket's buffer. If a send fails, the server has ended, and its exit status tells why.
  if (link_send(*link, MESSAGE_OPTIONS, PROTOCOL_VERSION, NULL, 0, settings->options_fd) == 0 &&
      (settings->input_fd < 0 || link_send(*link, MESSAGE_INPUT, 0, NULL, 0, settings->input_fd) == 0) &&
      link_send(*link, MESSAGE_SESSION, settings->user != NULL, NULL, 0, session) == 0 &&
      (!managed || link_send(*link, MESSAGE_SERVICE, 0, NULL, 0, -1) == 0) &&
      (!*kept || link_send(*link, MESSAGE_KEPT, 0, kept, strlen(kept), -1) == 0) && send_hold(hold, *link) == 0)
    link_send(*link, MESSAGE_START, before, settings->mountpoint, strlen(settings->mountpoint), -1);
  return server;
}
