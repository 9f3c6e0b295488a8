#include "supervise.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdint.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include "backing.h"
#include "clock.h"
#include "complain.h"
#include "guard.h"
#include "helper.h"
#include "kept.h"
#include "link.h"
#include "messages.h"
#include "mounting.h"
#include "notices.h"
#include "opening.h"
#include "places.h"
#include "relay.h"
#include "service.h"
#include "session.h"
#include "succession.h"
#include "upgrade.h"
#include "waking.h"
#include "watchdog.h"

// How long the server may run after a second signal, and how long the kernel may take to end it, in milliseconds.
enum { GRACE_AFTER_SECOND_SIGNAL = 2000, GRACE_AFTER_KILL = 5000 };

// How many messages the helper takes while a signal waits.
enum { MOST_IN_A_ROW = 1000 };

static void fill_signals(sigset_t *set) {
  sigemptyset(set);
  sigaddset(set, SIGTERM);
  sigaddset(set, SIGINT);
  sigaddset(set, SIGHUP);
  sigaddset(set, SIGUSR1);
  sigaddset(set, SIGCHLD);
}

void block_signals(void) {
  sigset_t set;
  fill_signals(&set);
  sigprocmask(SIG_BLOCK, &set, NULL);
  signal(SIGPIPE, SIG_IGN);
}

// Ends the mount in order; the log says how the last server ended.
static void end_without_server(struct helper *helper) {
  helper->ended = true;
  helper->status = 0;
}

// The service restarts: the server saves what it has, and the helper ends without the mount.
static void leave(struct helper *helper) {
  if (helper->leaving) return;
  helper->leaving = helper->service.stopping = true;
  tend_service(&helper->service, true);
  complain("the service restarts: its manager keeps the mount of %s, and readers wait", helper->settings->mountpoint);
  hush_notices(&helper->notices);
  if (helper->server <= 0) {
    end_without_server(helper);
  } else if (helper->served && link_send(helper->link, MESSAGE_VERDICT, 0, NULL, 0, -1) == 0) {
    kill_after(helper, UPGRADE_PATIENCE);
  } else {
    kill(helper->server, SIGKILL);
  }
}

static void take_signal(struct helper *helper) {
  struct signalfd_siginfo info;
  if (read(helper->signals, &info, sizeof info) != sizeof info) return;
  if (info.ssi_signo == SIGCHLD) return take_child(helper);
  if (info.ssi_signo == SIGHUP) {
    // The server reads its list again; one that does not serve yet will. A terminal that closes asks for nothing: its
    // hang-up comes from the kernel.
    if (info.ssi_code != SI_USER || helper->server <= 0 || !helper->served) return;
    kill(helper->server, SIGHUP);
    helper->service.reloading = true;
    tend_service(&helper->service, true);
    return;
  }
  if (info.ssi_signo == SIGUSR1 && helper->service.socket >= 0 && helper->stops == 0 && helper->ready)
    return leave(helper);
  helper->stops++;
  helper->leaving = false;
  helper->service.stopping = true;
  if (helper->server <= 0) {
    end_without_server(helper);
  } else if (helper->expelled) {
    helper->killed = true;  // already
    helper->kill_at = 0;    // an upgrade's
    kill_after(helper, GRACE_AFTER_KILL);
  } else if (helper->stops == 1) {
    if (!helper->failed) helper->kill_at = 0;  // an upgrade's: a server that saves its data may take longer
    kill(helper->server, SIGTERM);
  } else {
    kill_after(helper, GRACE_AFTER_SECOND_SIGNAL);
  }
}

// Starts a guard, if that is due, and returns how long poll may wait, as below.
static int64_t see_to_guard(struct helper *helper, int64_t left) {
  if (helper->guard_at == 0) return left;
  if (milliseconds() >= helper->guard_at) renew_guard(helper);
  if (helper->guard_at == 0) return left;
  const int64_t until = helper->guard_at - milliseconds();
  return left < 0 || until < left ? (until > 0 ? until : 0) : left;
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

// The server's time is up. If the kernel cannot end it either, because it has a file of a filesystem that does not
// answer, and the helper is to end, the mount ends without waiting for it.
static void kill_server(struct helper *helper) {
  helper->kill_at = 0;
  if (helper->killed) {
    complain("the server is killed and does not end: another program holds it. The mount ends without it");
    if (is_connected(&helper->mount)) abort_connection(&helper->mount);
    end_without_server(helper);
    return;
  }
  kill(helper->server, SIGKILL);
  helper->killed = helper->failed || helper->stops > 0;
  if (helper->killed) kill_after(helper, GRACE_AFTER_KILL);
}

// Tells the service manager what is due, and returns how long poll may wait, as above.
static int see_to_service(struct helper *helper, int left) {
  const int until = tend_service(&helper->service, false);
  return until >= 0 && (left < 0 || until < left) ? until : left;
}

// Handles messages, signals and times until the last server has ended.
static void watch(struct helper *helper) {
  int in_a_row = 0;  // messages that were taken while a signal waited
  while (!helper->ended) {
    const bool idle = helper->server <= 0;
    const int64_t at = idle ? helper->start_at : helper->kill_at;
    const int64_t left = at == 0 ? -1 : at > milliseconds() ? at - milliseconds() : 0;
    // While a server has the device, it sees the end of the mount first.
    const bool has_device = idle || helper->refusing;
    struct pollfd events[3] = {{.fd = helper->signals, .events = POLLIN},
                               {.fd = helper->messages, .events = POLLIN},
                               {.fd = has_device ? helper->mount.device_fd : -1,
                                .events = helper->refusing ? POLLIN : 0}};
    if (left == 0 && idle) {
      start_next(helper);
    } else if (left == 0) {
      kill_server(helper);
    } else if (poll(events, 3, see_to_service(helper, look_after(helper, see_to_guard(helper, left)))) <= 0) {
      continue;
    } else if (events[1].revents && (!events[0].revents || in_a_row < MOST_IN_A_ROW)) {
      in_a_row = events[0].revents ? in_a_row + 1 : 0;
      take_link(helper);  // first: the server sent its messages before it ended
    } else if (events[0].revents) {
      in_a_row = 0;
      take_signal(helper);
    } else if (events[2].revents & POLLERR) {
      // Unmounted. A server that is about to be tried sees it as it begins.
      if (idle) end_without_server(helper);
      helper->refusing = false;
    } else {
      // Nobody else would answer.
      if (refuse_unread(helper->session, helper->mount.device_fd)) continue;
      abort_connection(&helper->mount);
      if (is_connected(&helper->mount)) end_without_server(helper);
    }
  }
}

// Whether the mount stays, for the next helper.
static bool is_left(const struct helper *helper) { return helper->leaving && is_connected(&helper->mount); }

// Takes the session memory, and the mount if the service manager kept one, or makes a new one. Returns 0, or -1 after a
// message.
static int begin_session(struct helper *helper) {
  const struct settings *const settings = helper->settings;
  switch (adopt_mount(&helper->service, settings, settings->kept, &helper->mount, &helper->session)) {
    case UNUSABLE: return -1;
    case NOTHING_KEPT: helper->session = create_session(); break;
    case ADOPTED:
      helper->ready = helper->adopted = true;
      helper->servers = 1;  // at least: the next one goes on
      adopt_ids(&helper->backing, helper->session);
      adopt_filesystem(&helper->waking);
      break;
  }
  helper->watchdog.session = helper->session;
  return helper->session >= 0 ? 0 : -1;
}

// Returns the exit status, and writes a message for an end that the server could not explain itself.
static int judge(const struct helper *helper) {
  if (is_left(helper)) return STATUS_LEFT;
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
      .settings = settings, .announce = announce_to, .session = -1, .link = -1, .messages = -1, .log = -1, .server = -1, .guard = -1};
  helper.mount.device_fd = -1;
  helper.notices.from_servers = -1;
  helper.watchdog.limit = settings->watchdog;
  helper.backing.settings = settings;
  helper.backing.socket = -1;
  helper.waking.settings = settings;
  helper.waking.socket = -1;
  helper.hold.folder = -1;
  open_service(&helper.service, settings->service);
  sigset_t set;
  fill_signals(&set);
  helper.signals = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
  int status = 1;
  if (helper.signals < 0) {
    complain("cannot wait for signals: %s", strerror(errno));
  } else if ((!settings->user || start_relay() == 0) && hold_program(&helper.upgrade, settings) == 0 &&
             begin_session(&helper) == 0) {
    start_next(&helper);
    watch(&helper);
    end_relay();  // the last server's own words come before those about its end
    if (helper.servers > 0) status = judge(&helper);
  }
  helper.service.stopping = true;
  tend_service(&helper.service, true);
  if (status == STATUS_LEFT) {
    end_backing(&helper.backing);
    end_waking(&helper.waking);
    complain_directly();
    return status;
  }
  end_notices(&helper.notices, helper.session, &helper.mount);
  end_backing(&helper.backing);
  end_waking(&helper.waking);
  end_opening(&helper.opening);
  unmount_filesystem(settings, &helper.mount);
  forget_mount(&helper.service);
  end_guard(helper.guard);
  complain_directly();
  if (!helper.ready) remove_made_folders(settings);
  announce(&helper, 1);
  return status;
}
