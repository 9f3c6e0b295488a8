#include "supervise.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "complain.h"
#include "link.h"
#include "mounting.h"
#include "places.h"
#include "server.h"

// How long the server may run after a second signal, or after the helper gave up, in milliseconds.
enum { GRACE_AFTER_SECOND_SIGNAL = 2000, GRACE_AFTER_FAILURE = 10000 };

struct helper {
  const struct settings *settings;
  int announce;    // see supervise(); -1 after the announcement
  int link;        // the link to the server; -1 after its end
  int signals;     // a signalfd
  int log;         // the log file for messages in the background; -1 until the server sends it
  pid_t server;    // -1 after its end
  int status;      // the server's exit status (wait(2))
  bool ready;      // the mount is ready
  bool failed;     // the helper gave up: it exits with 1, whatever the server's status
  int stops;       // SIGTERM and SIGINT so far
  int64_t kill_at; // when to kill the server, in milliseconds of CLOCK_MONOTONIC; 0 for never
  struct mount mount;
};

static int64_t milliseconds(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

static void fill_signals(sigset_t *set) {
  sigemptyset(set);
  sigaddset(set, SIGTERM);
  sigaddset(set, SIGINT);
  sigaddset(set, SIGHUP);
  sigaddset(set, SIGCHLD);
}

void block_signals(void) {
  sigset_t set;
  fill_signals(&set);
  sigprocmask(SIG_BLOCK, &set, NULL);
  signal(SIGPIPE, SIG_IGN);
}

static void kill_after(struct helper *helper, int grace) {
  int64_t at = milliseconds() + grace;
  if (helper->kill_at == 0 || at < helper->kill_at) helper->kill_at = at;
}

static void close_link(struct helper *helper) {
  if (helper->link >= 0) close(helper->link);
  helper->link = -1;
}

// An error of the helper: it ends the server and ignores further messages.
static void give_up(struct helper *helper) {
  helper->failed = true;
  close_link(helper);  // the server ends when the link does
  if (helper->server > 0) kill(helper->server, SIGTERM);
  kill_after(helper, GRACE_AFTER_FAILURE);
}

static void announce(struct helper *helper, char status) {
  if (helper->announce < 0) return;
  // If no process reads the byte, the caller was killed. The mount works all the same.
  ssize_t written = write(helper->announce, &status, 1);
  (void)written;
  close(helper->announce);
  helper->announce = -1;
}

// The mount is ready: detaches from the terminal, then lets the caller return.
static void detach(struct helper *helper) {
  if (helper->settings->foreground) return;
  int null = open("/dev/null", O_RDWR | O_CLOEXEC);
  if (null >= 0) {
    dup2(null, STDIN_FILENO);
    dup2(null, STDOUT_FILENO);
    dup2(helper->log >= 0 ? helper->log : null, STDERR_FILENO);
    close(null);
  }
  announce(helper, 0);
}

// Directs the helper's messages to the server's log file. The server may have fewer rights than the helper, so the
// helper accepts only a regular file, and writes nothing but its own messages to it.
static void take_log(struct helper *helper, int descriptor) {
  struct stat status;
  if (fstat(descriptor, &status) != 0 || !S_ISREG(status.st_mode)) {
    close(descriptor);
    return;
  }
  if (helper->log >= 0) close(helper->log);
  helper->log = descriptor;
  if (helper->ready && !helper->settings->foreground) dup2(descriptor, STDERR_FILENO);
}

static void take_message(struct helper *helper, struct message *message) {
  switch (message->type) {
    case MESSAGE_PREPARED:
      if (message->value != PROTOCOL_VERSION || helper->mount.device_fd >= 0) break;
      if (mount_filesystem(helper->settings, &helper->mount) != 0 ||
          link_send(helper->link, MESSAGE_MOUNTED, helper->mount.device, NULL, 0, helper->mount.device_fd) != 0)
        give_up(helper);
      return;
    case MESSAGE_READY:
      if (helper->mount.device_fd < 0 || helper->ready) break;
      helper->ready = true;  // drops the INIT request in the message: no helper restarts a server yet
      detach(helper);
      return;
    case MESSAGE_LOG:
      if (message->descriptor < 0) break;
      take_log(helper, message->descriptor);
      message->descriptor = -1;
      return;
  }
  complain("the server breaks the protocol (message %u, value %u): do helper and server have the same version?",
           message->type, message->value);
  give_up(helper);
}

static void take_link(struct helper *helper) {
  static struct message message;
  int result = link_receive(helper->link, &message);
  if (result == 1) {
    take_message(helper, &message);
    if (message.descriptor >= 0) close(message.descriptor);
  } else if (result == 0 || errno == ECONNRESET) {
    close_link(helper);  // the server is about to end; SIGCHLD brings its status
  } else {
    complain("the server breaks the protocol: %s", strerror(errno));
    give_up(helper);
  }
}

static void take_signal(struct helper *helper) {
  struct signalfd_siginfo info;
  if (read(helper->signals, &info, sizeof info) != sizeof info) return;
  if (info.ssi_signo == SIGCHLD) {
    // A user can stop the server that runs as them (SIGSTOP); root would wait for it for ever.
    int status;
    const int stops = helper->settings->user && !helper->ready && !helper->failed ? WUNTRACED : 0;
    if (helper->server <= 0 || waitpid(helper->server, &status, WNOHANG | stops) != helper->server) return;
    if (WIFSTOPPED(status)) {
      complain("signal %d stopped the server before the mount was ready", WSTOPSIG(status));
      give_up(helper);
      kill(helper->server, SIGCONT);  // so that it takes the SIGTERM; if it is stopped again, it is killed
      return;
    }
    helper->status = status;
    helper->server = -1;
    return;
  }
  if (info.ssi_signo == SIGHUP) {
    complain("the mount helper ignores SIGHUP: a mount ends by unmounting, or by SIGTERM");
    return;
  }
  helper->stops++;
  if (helper->stops == 1) {
    if (helper->server > 0) kill(helper->server, SIGTERM);
  } else {
    kill_after(helper, GRACE_AFTER_SECOND_SIGNAL);
  }
}

// Handles messages and signals until the server has ended.
static void watch(struct helper *helper) {
  while (helper->server > 0) {
    struct pollfd events[2] = {{.fd = helper->signals, .events = POLLIN}, {.fd = helper->link, .events = POLLIN}};
    int timeout = -1;
    if (helper->kill_at != 0) {
      int64_t left = helper->kill_at - milliseconds();
      if (left <= 0) {
        kill(helper->server, SIGKILL);
        helper->kill_at = 0;
        continue;
      }
      timeout = (int)left;
    }
    if (poll(events, 2, timeout) <= 0) continue;
    // The link comes first: the server sent its messages before it ended.
    if (events[1].revents) {
      take_link(helper);
    } else if (events[0].revents) {
      take_signal(helper);
    }
  }
}

// Returns the exit status, and writes a message for an end that the server could not explain itself.
static int judge(const struct helper *helper) {
  const char *before = helper->ready ? "" : " before the mount was ready";
  if (WIFSIGNALED(helper->status)) {
    complain("the server was killed by signal %d%s", WTERMSIG(helper->status), before);
    return 1;
  }
  if (helper->failed) return 1;
  if (helper->ready) return WEXITSTATUS(helper->status);
  if (helper->stops > 0) complain("interrupted%s", before);
  if (helper->stops == 0 && WEXITSTATUS(helper->status) == 0) complain("the server ended%s", before);
  return 1;
}

static void remove_made_folders(const struct settings *settings) {
  char *path = strdup(settings->mountpoint);
  for (int i = 0; path && i < settings->made_folders; i++) {
    const char *name;
    int parent = open_parent(path, &name);
    int result = parent < 0 ? -1 : unlinkat(parent, name, AT_REMOVEDIR);
    if (parent >= 0) close(parent);
    if (result != 0) break;  // another program uses the folder by now, so it stays
    char *slash = strrchr(path, '/');
    if (!slash || slash == path) break;
    *slash = 0;
  }
  free(path);
}

int supervise(const struct settings *settings, int announce_to) {
  static struct helper helper;
  helper = (struct helper){.settings = settings, .announce = announce_to, .link = -1, .log = -1, .server = -1};
  helper.mount.device_fd = -1;
  sigset_t set;
  fill_signals(&set);
  helper.signals = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
  int status = 1;
  if (helper.signals < 0) {
    complain("cannot wait for signals: %s", strerror(errno));
  } else {
    helper.server = start_server(settings, &helper.link);
    if (helper.server > 0) {
      watch(&helper);
      status = judge(&helper);
    }
  }
  unmount_filesystem(settings, &helper.mount);
  if (!helper.ready) remove_made_folders(settings);
  announce(&helper, 1);
  return status;
}
