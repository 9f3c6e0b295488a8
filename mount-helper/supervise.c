#include "supervise.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "backing.h"
#include "complain.h"
#include "guard.h"
#include "link.h"
#include "mounting.h"
#include "notices.h"
#include "places.h"
#include "read_ahead.h"
#include "server.h"
#include "session.h"
#include "upgrade.h"
#include "watchdog.h"
#include "work.h"

// How long the server may run after a second signal, or after the helper gave up, in milliseconds.
enum { GRACE_AFTER_SECOND_SIGNAL = 2000, GRACE_AFTER_FAILURE = 10000 };

// When the next server starts, in milliseconds. A server is mute if it answered no request, unless it served and lived
// for LONG_LIFE, or another process killed it while it served. After MOST_MUTE of them in a row, the helper itself
// answers, with errors.
enum { SHORT_LIFE = 1000, LONG_LIFE = 10000, MOST_MUTE = 5 };
enum { LEAST_PAUSE = 100, PAUSE_AFTER_FAILED_START = 5000, PAUSE_WHEN_REFUSING = 60000 };

// How many messages the helper takes while a signal waits.
enum { MOST_IN_A_ROW = 1000 };

struct helper {
  const struct settings *settings;
  int announce;    // see supervise(); -1 after the announcement
  int session;     // the session memory
  int link;        // the link to the server; -1 after its end
  int signals;     // a signalfd
  int log;         // the log file for messages in the background; -1 until the server sends it
  pid_t server;    // -1 while no server runs
  int status;      // the last server's exit status (wait(2))
  bool prepared;   // this server sent PREPARED
  bool ready;      // the mount is ready: a server sent READY
  bool served;     // this server sent READY
  bool expelled;   // the helper killed this server: it broke the protocol, or hung
  bool failed;     // the helper gave up: it exits with 1, whatever the server's status
  bool ended;      // no further server is to start
  bool refusing;   // the helper answers requests with errors
  int stops;       // SIGTERM and SIGINT so far
  int64_t kill_at; // when to kill the server, in milliseconds of CLOCK_MONOTONIC; 0 for never
  uint32_t servers;     // how many were started
  int mute;             // how many of the last ones were mute
  int64_t started_at;   // when the last one was started
  uint64_t answers;     // how many requests were answered by then
  int64_t start_at;     // when to start the next one
  struct mount mount;
  struct notices notices;
  struct upgrade upgrade;
  struct watchdog watchdog;
  struct backing backing;
  pid_t guard;  // the process that unmounts if this one is killed; -1 without one
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

// An error of the helper, or of the protocol: it ends the server and ignores further messages of it. Once the mount is
// ready, the next server goes on.
static void give_up(struct helper *helper) {
  if (helper->ready) {
    helper->expelled = true;
    if (helper->server > 0) kill(helper->server, SIGKILL);  // first, as a server whose link ends unmounts
    close_link(helper);
    return;
  }
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

// Makes the helper ready for a server that has the device: what it does for the server, it does on threads of its own.
static void send_mount(struct helper *helper, int library) {
  const int files = start_backing(&helper->backing, helper->mount.device_fd, helper->session, library);
  if (files < 0) return give_up(helper);
  // If a send fails, the server has ended.
  if (link_send(helper->link, MESSAGE_NOTICES, 0, NULL, 0, helper->notices.for_servers) == 0 &&
      link_send(helper->link, MESSAGE_BACKING, 0, NULL, 0, files) == 0)
    link_send(helper->link, MESSAGE_MOUNTED, helper->mount.device, NULL, 0, helper->mount.device_fd);
  close(files);
}

static void take_message(struct helper *helper, struct message *message) {
  switch (message->type) {
    case MESSAGE_PREPARED:
      if (message->value != PROTOCOL_VERSION) keep_version(&helper->upgrade, message->value);
      if (message->value != PROTOCOL_VERSION || helper->prepared) break;
      helper->prepared = true;
      if (helper->mount.device_fd < 0 && (mount_filesystem(helper->settings, &helper->mount) != 0 ||
                                          start_notices(&helper->notices, helper->mount.device_fd) != 0)) {
        give_up(helper);
      } else {
        send_mount(helper, message->descriptor);
      }
      return;
    case MESSAGE_READY:
      if (!helper->prepared) break;
      helper->served = true;
      if (is_trying(&helper->upgrade)) {
        complete_upgrade(&helper->upgrade);
        if (helper->stops == 0) helper->kill_at = 0;
      }
      if (helper->ready) return;
      helper->ready = true;
      raise_read_ahead(helper->mount.device);
      detach(helper);
      if (helper->settings->user) helper->guard = start_guard(helper->settings, &helper->mount);
      return;
    case MESSAGE_LOG:
      if (message->descriptor < 0) break;
      take_log(helper, message->descriptor);
      message->descriptor = -1;
      return;
    case MESSAGE_UPGRADE:
      // One at a time, and of a server that serves.
      if (!helper->served || helper->upgrade.next >= 0 || message->length != 16) break;
      if (agree_to_upgrade(&helper->upgrade, helper->settings, helper->link, message) && helper->stops == 0)
        kill_after(helper, UPGRADE_PATIENCE);
      return;
    case MESSAGE_FAILED:
      keep_words(&helper->upgrade, message);
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

// Whether the server's end is the end of the mount: before the mount is ready, after an unmount, and if the server or
// the helper was told to end.
static bool is_last(const struct helper *helper) {
  return !helper->ready || helper->failed || helper->stops > 0 || !is_connected(&helper->mount) ||
         (WIFEXITED(helper->status) && WEXITSTATUS(helper->status) == 0 && !is_trying(&helper->upgrade));
}

// The server has ended, with all its threads: decides whether and when the next one starts.
static void take_end(struct helper *helper, int status) {
  helper->server = -1;
  helper->status = status;
  helper->kill_at = 0;
  close_link(helper);
  helper->ended = is_last(helper);
  if (helper->ended) return;
  const int64_t life = milliseconds() - helper->started_at;
  if (follow_upgrade(&helper->upgrade, helper->settings, status, life)) {
    helper->start_at = milliseconds();
    return;
  }
  const bool answered = count_answers(helper->session) != helper->answers;
  // A server that another process killed may just not have been asked.
  const bool was_killed = helper->served && !helper->expelled && WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL;
  helper->mute = answered || was_killed || (helper->served && !helper->expelled && life >= LONG_LIFE) ? 0 : helper->mute + 1;
  int64_t pause = helper->mute > 0 || life < SHORT_LIFE ? LEAST_PAUSE : 0;
  for (int i = 1; i < helper->mute && i < MOST_MUTE; i++) pause *= 3;
  helper->refusing = helper->mute >= MOST_MUTE;
  if (helper->refusing) pause = PAUSE_WHEN_REFUSING;
  helper->start_at = milliseconds() + pause;

  char how[64];
  if (WIFSIGNALED(status)) {
    snprintf(how, sizeof how, "was killed by signal %d (%s)", WTERMSIG(status), strsignal(WTERMSIG(status)));
  } else {
    snprintf(how, sizeof how, "ended with status %d", WEXITSTATUS(status));
  }
  if (helper->refusing) {
    complain("the server %s; %d in a row answered nothing, so every request to %s fails (EIO). The next server starts "
             "in 60 s",
             how, helper->mute, helper->settings->mountpoint);
  } else {
    complain("the server %s; readers of %s wait for the next one, which starts %s", how, helper->settings->mountpoint,
             pause > 0 ? "soon" : "now");
  }
  if (helper->served) tell_work(helper->session);  // first, as the next line clears it
  if (helper->refusing) refuse_taken(helper->session, helper->mount.device_fd);
}

static void start_next(struct helper *helper) {
  helper->prepared = false;
  helper->served = false;
  helper->expelled = false;
  helper->refusing = false;
  helper->started_at = milliseconds();
  helper->answers = count_answers(helper->session);
  helper->server = start_server(helper->settings, program_to_start(&helper->upgrade), helper->session,
                                helper->servers, helper->upgrade.why, &helper->link);
  begin_watch(&helper->watchdog);
  if (helper->server > 0) {
    helper->servers++;
    if (is_trying(&helper->upgrade)) kill_after(helper, UPGRADE_PATIENCE);
  } else {
    helper->ended = !helper->ready;
    helper->refusing = helper->mute >= MOST_MUTE;
    helper->start_at = milliseconds() + PAUSE_AFTER_FAILED_START;
  }
}

static void take_child(struct helper *helper) {
  // A user can stop the server that runs as them (SIGSTOP); root would wait for it for ever.
  int status;
  const int stops = helper->settings->user && !helper->ready && !helper->failed ? WUNTRACED : 0;
  if (helper->server <= 0 || waitpid(helper->server, &status, WNOHANG | stops) != helper->server) return;
  if (!WIFSTOPPED(status)) return take_end(helper, status);
  complain("signal %d stopped the server before the mount was ready", WSTOPSIG(status));
  give_up(helper);
  kill(helper->server, SIGCONT);  // so that it takes the SIGTERM; if it is stopped again, it is killed
}

// Ends the mount in order; the log says how the last server ended.
static void end_without_server(struct helper *helper) {
  helper->ended = true;
  helper->status = 0;
}

static void take_signal(struct helper *helper) {
  struct signalfd_siginfo info;
  if (read(helper->signals, &info, sizeof info) != sizeof info) return;
  if (info.ssi_signo == SIGCHLD) return take_child(helper);
  if (info.ssi_signo == SIGHUP) {
    complain("the mount helper ignores SIGHUP: a mount ends by unmounting, or by SIGTERM");
    return;
  }
  helper->stops++;
  if (helper->server <= 0) {
    end_without_server(helper);
  } else if (helper->stops == 1) {
    if (!helper->failed) helper->kill_at = 0;  // an upgrade's: a server that saves its data may take longer
    kill(helper->server, SIGTERM);
  } else {
    kill_after(helper, GRACE_AFTER_SECOND_SIGNAL);
  }
}

// Looks at the server, if that is due, and returns how long poll may wait: `left` milliseconds at most (-1: for ever).
// Not before the mount is ready: the first server may read a long list. Nor when the server was told to end.
static int look_after(struct helper *helper, int64_t left) {
  if (helper->server <= 0 || !helper->ready || helper->stops > 0 || helper->kill_at > 0) return (int)left;
  if (helper->expelled) return (int)left;  // it was killed, and ends once the kernel lets it
  if (server_hangs(&helper->watchdog, helper->server, helper->served)) {
    helper->expelled = true;
    kill(helper->server, SIGKILL);
  }
  const int until = until_look(&helper->watchdog);
  return until >= 0 && (left < 0 || until < left) ? until : (int)left;
}

// Handles messages, signals and times until the last server has ended.
static void watch(struct helper *helper) {
  int in_a_row = 0;  // messages that were taken while a signal waited
  while (!helper->ended) {
    const bool idle = helper->server <= 0;
    const int64_t at = idle ? helper->start_at : helper->kill_at;
    const int64_t left = at == 0 ? -1 : at > milliseconds() ? at - milliseconds() : 0;
    // While a server runs, it sees the end of the mount first.
    struct pollfd events[3] = {{.fd = helper->signals, .events = POLLIN},
                               {.fd = helper->link, .events = POLLIN},
                               {.fd = idle ? helper->mount.device_fd : -1, .events = helper->refusing ? POLLIN : 0}};
    if (left == 0 && idle) {
      start_next(helper);
    } else if (left == 0) {
      kill(helper->server, SIGKILL);
      helper->kill_at = 0;
    } else if (poll(events, 3, look_after(helper, left)) <= 0) {
      continue;
    } else if (events[1].revents && (!events[0].revents || in_a_row < MOST_IN_A_ROW)) {
      in_a_row = events[0].revents ? in_a_row + 1 : 0;
      take_link(helper);  // first: the server sent its messages before it ended
    } else if (events[0].revents) {
      in_a_row = 0;
      take_signal(helper);
    } else if (events[2].revents & POLLERR) {
      end_without_server(helper);  // unmounted
    } else {
      refuse_unread(helper->session, helper->mount.device_fd);
    }
  }
}

// Returns the exit status, and writes a message for an end that the server could not explain itself.
static int judge(const struct helper *helper) {
  const char *before = helper->ready ? "" : " before the mount was ready";
  if (WIFSIGNALED(helper->status)) {
    // A server that has just been started does not catch SIGTERM yet.
    if (helper->ready && helper->stops > 0 && WTERMSIG(helper->status) == SIGTERM) return 0;
    if (helper->ready && helper->stops == 0 && !is_connected(&helper->mount)) return 0;  // unmounted meanwhile
    complain("the server was killed by signal %d%s", WTERMSIG(helper->status), before);
    return 1;
  }
  if (helper->failed) return 1;
  if (helper->ready) return WEXITSTATUS(helper->status) == STATUS_HANDED_OVER ? 0 : WEXITSTATUS(helper->status);
  if (helper->stops > 0) complain("interrupted%s", before);
  if (helper->stops == 0 && WEXITSTATUS(helper->status) == 0) complain("the server ended%s", before);
  return 1;
}

int supervise(const struct settings *settings, int announce_to) {
  static struct helper helper;
  helper = (struct helper){
      .settings = settings, .announce = announce_to, .session = -1, .link = -1, .log = -1, .server = -1, .guard = -1};
  helper.mount.device_fd = -1;
  helper.notices.from_servers = -1;
  helper.watchdog.limit = settings->watchdog;
  helper.backing.settings = settings;
  helper.backing.socket = -1;
  sigset_t set;
  fill_signals(&set);
  helper.signals = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
  int status = 1;
  if (helper.signals < 0) {
    complain("cannot wait for signals: %s", strerror(errno));
  } else if (hold_program(&helper.upgrade, settings) == 0 &&
             (helper.session = helper.watchdog.session = create_session()) >= 0) {
    start_next(&helper);
    watch(&helper);
    if (helper.servers > 0) status = judge(&helper);
  }
  end_notices(&helper.notices, helper.session, &helper.mount);
  end_backing(&helper.backing);
  unmount_filesystem(settings, &helper.mount);
  end_guard(helper.guard);
  if (!helper.ready) remove_made_folders(settings);
  announce(&helper, 1);
  return status;
}
