#include "succession.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>

#include "clock.h"
#include "complain.h"
#include "helper.h"
#include "messages.h"
#include "mounting.h"
#include "opening.h"
#include "server.h"
#include "service.h"
#include "session.h"
#include "state.h"
#include "upgrade.h"
#include "watchdog.h"
#include "work.h"

// When the next server starts, in milliseconds. A server is mute if it answered no request, unless it served and lived
// for LONG_LIFE, or another process killed it while it served. After MOST_MUTE of them in a row, the helper itself
// answers, with errors.
enum { SHORT_LIFE = 1000, LONG_LIFE = 10000, MOST_MUTE = 5 };
enum { LEAST_PAUSE = 100, PAUSE_WHEN_REFUSING = 60000, PAUSE_AFTER_FAILED_START = 5000 };

// Whether the server's end is the end of the mount: before the mount is ready, after an unmount, and if the server or
// the helper was told to end.
static bool is_last(const struct helper *helper) {
  // A service that restarted with options that no server can serve fails, and does not try for ever.
  const bool is_refused = helper->adopted && !helper->prepared && helper->upgrade.said[0] && WIFEXITED(helper->status);
  return !helper->ready || helper->leaving || is_refused || helper->failed || helper->stops > 0 ||
         !is_connected(&helper->mount) ||
         (WIFEXITED(helper->status) && WEXITSTATUS(helper->status) == 0 && !is_trying(&helper->upgrade));
}

// A server is gone, which is `what` in words, or none could be started: the next one starts after a pause, and from
// MOST_MUTE mute ones in a row on the helper itself answers meanwhile, with errors.
static void wait_for_next(struct helper *helper, const char *what, int64_t pause, int64_t when_refusing) {
  helper->refusing = helper->mute >= MOST_MUTE;
  for (int i = 1; i < helper->mute && i < MOST_MUTE; i++) pause *= 3;
  if (helper->refusing) pause = when_refusing;
  helper->start_at = milliseconds() + pause;
  const char *said = helper->upgrade.said;
  set_status(&helper->service, what);
  tell_state(helper->settings, "%s%s%s. %s", what, *said ? ": " : "", said,
             helper->refusing ? "Every request fails (EIO). Another server is tried soon"
                              : "Readers wait for the next server");
  if (helper->refusing) {
    complain("%s; %d in a row answered nothing, so every request to %s fails (EIO). The next server starts in %d s",
             what, helper->mute, helper->settings->mountpoint, (int)(pause / 1000));
  } else {
    complain("%s; readers of %s wait for the next one, which starts %s", what, helper->settings->mountpoint,
             pause > 0 ? "soon" : "now");
  }
  if (helper->prepared) tell_work(helper->session);  // first, as the next line clears it
  if (helper->refusing) refuse_taken(helper->session, helper->mount.device_fd);
}

// The server has ended, with all its threads: decides whether and when the next one starts.
static void take_end(struct helper *helper, int status) {
  helper->server = -1;
  helper->status = status;
  helper->kill_at = 0;
  close_link(helper);
  forget_asked(&helper->opening);
  helper->ended = is_last(helper);
  if (helper->ended) return;
  const int64_t life = milliseconds() - helper->started_at;
  char how[64];
  if (WIFSIGNALED(status)) {
    snprintf(how, sizeof how, "was killed by signal %d (%s)", WTERMSIG(status), strsignal(WTERMSIG(status)));
  } else {
    snprintf(how, sizeof how, "ended with status %d", WEXITSTATUS(status));
  }
  if (follow_upgrade(&helper->upgrade, helper->settings, helper->session, status, how, life)) {
    if (helper->prepared && WIFSIGNALED(status)) tell_work(helper->session);
    helper->start_at = milliseconds();
    return;
  }
  const bool answered = count_answers(helper->session) != helper->answers;
  // A server that another process killed may just not have been asked.
  const bool was_killed = helper->served && !helper->expelled && WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL;
  const bool lived_long = helper->served && !helper->expelled && life >= LONG_LIFE;
  helper->mute = answered || was_killed || lived_long ? 0 : helper->mute + 1;
  char what[96];
  snprintf(what, sizeof what, "the server %s", how);
  wait_for_next(helper, what, helper->mute > 0 || life < SHORT_LIFE ? LEAST_PAUSE : 0, PAUSE_WHEN_REFUSING);
}

void start_next(struct helper *helper) {
  if (!close_left(helper)) {
    complain("the servers of %s have sent %d descriptors that wait for another program: the mount ends",
             helper->settings->mountpoint, MOST_LEFT);
    helper->ended = true;
    return;
  }
  helper->prepared = false;
  helper->served = false;
  helper->expelled = false;
  helper->killed = false;
  helper->logged = false;
  helper->started_at = milliseconds();
  helper->answers = count_answers(helper->session);
  helper->server = start_server(helper->settings, program_to_start(&helper->upgrade, helper->session), helper->session,
                                helper->servers, helper->upgrade.why, &helper->hold, helper->service.socket >= 0,
                                &helper->link, &helper->messages);
  begin_watch(&helper->watchdog, false);
  if (helper->server > 0) {
    helper->servers++;
    if (is_trying(&helper->upgrade)) kill_after(helper, UPGRADE_PATIENCE);
  } else {
    // Without a process or a descriptor, readers do not wait for ever either.
    helper->ended = !helper->ready;
    helper->mute++;
    if (!helper->ended) wait_for_next(helper, "no server could be started", LEAST_PAUSE, PAUSE_AFTER_FAILED_START);
  }
}

void take_child(struct helper *helper) {
  take_guard(helper);
  take_opener(&helper->opening, helper->settings, helper->upgrade.program, helper->link);
  // A user can stop the server that runs as them (SIGSTOP); root would wait for it for ever.
  int status;
  siginfo_t found = {.si_pid = 0};
  const int stops = helper->settings->user && !helper->ready && !helper->failed ? WSTOPPED : 0;
  if (helper->server <= 0) return;
  const int how = WNOHANG | WNOWAIT | WEXITED | stops;
  if (waitid(P_PID, (id_t)helper->server, &found, how) != 0 || found.si_pid == 0) return;
  // What it sent before it ended comes first. It keeps its number until then.
  if (found.si_code != CLD_STOPPED) drain_link(helper);
  if (waitpid(helper->server, &status, WNOHANG | (stops ? WUNTRACED : 0)) != helper->server) return;
  if (!WIFSTOPPED(status)) return take_end(helper, status);
  complain("signal %d stopped the server before the mount was ready", WSTOPSIG(status));
  give_up(helper);
  kill(helper->server, SIGCONT);  // so that it takes the SIGTERM; if it is stopped again, it is killed
}
