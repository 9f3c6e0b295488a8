#include "succession.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>

#include "clock.h"
#include "complain.h"
#include "mounting.h"
#include "server.h"
#include "session.h"
#include "upgrade.h"
#include "watchdog.h"
#include "work.h"

// When the next server starts, in milliseconds. A server is mute if it answered no request, unless it served and lived
// for LONG_LIFE, or another process killed it while it served. After MOST_MUTE of them in a row, the helper itself
// answers, with errors.
enum { SHORT_LIFE = 1000, LONG_LIFE = 10000, MOST_MUTE = 5 };
enum { LEAST_PAUSE = 100, PAUSE_AFTER_FAILED_START = 5000, PAUSE_WHEN_REFUSING = 60000 };

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
  char how[64];
  if (WIFSIGNALED(status)) {
    snprintf(how, sizeof how, "was killed by signal %d (%s)", WTERMSIG(status), strsignal(WTERMSIG(status)));
  } else {
    snprintf(how, sizeof how, "ended with status %d", WEXITSTATUS(status));
  }
  if (follow_upgrade(&helper->upgrade, helper->settings, helper->session, status, how, life)) {
    if (helper->served && WIFSIGNALED(status)) tell_work(helper->session);
    helper->start_at = milliseconds();
    return;
  }
  const bool answered = count_answers(helper->session) != helper->answers;
  // A server that another process killed may just not have been asked.
  const bool was_killed = helper->served && !helper->expelled && WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL;
  const bool lived_long = helper->served && !helper->expelled && life >= LONG_LIFE;
  helper->mute = answered || was_killed || lived_long ? 0 : helper->mute + 1;
  int64_t pause = helper->mute > 0 || life < SHORT_LIFE ? LEAST_PAUSE : 0;
  for (int i = 1; i < helper->mute && i < MOST_MUTE; i++) pause *= 3;
  helper->refusing = helper->mute >= MOST_MUTE;
  if (helper->refusing) pause = PAUSE_WHEN_REFUSING;
  helper->start_at = milliseconds() + pause;

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

void start_next(struct helper *helper) {
  helper->prepared = false;
  helper->served = false;
  helper->expelled = false;
  helper->started_at = milliseconds();
  helper->answers = count_answers(helper->session);
  helper->server = start_server(helper->settings, program_to_start(&helper->upgrade, helper->session), helper->session,
                                helper->servers, helper->upgrade.why, &helper->link);
  begin_watch(&helper->watchdog, false);
  if (helper->server > 0) {
    helper->servers++;
    if (is_trying(&helper->upgrade)) kill_after(helper, UPGRADE_PATIENCE);
  } else {
    helper->ended = !helper->ready;
    helper->refusing = helper->mute >= MOST_MUTE;
    helper->start_at = milliseconds() + PAUSE_AFTER_FAILED_START;
  }
}

void take_child(struct helper *helper) {
  take_guard(helper);
  // A user can stop the server that runs as them (SIGSTOP); root would wait for it for ever.
  int status;
  const int stops = helper->settings->user && !helper->ready && !helper->failed ? WUNTRACED : 0;
  if (helper->server <= 0 || waitpid(helper->server, &status, WNOHANG | stops) != helper->server) return;
  if (!WIFSTOPPED(status)) return take_end(helper, status);
  complain("signal %d stopped the server before the mount was ready", WSTOPSIG(status));
  give_up(helper);
  kill(helper->server, SIGCONT);  // so that it takes the SIGTERM; if it is stopped again, it is killed
}
