#include "helper.h"

#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "clock.h"
#include "complain.h"
#include "guard.h"

// How long the server may run after the helper gave up, in milliseconds.
enum { GRACE_AFTER_FAILURE = 10000 };

// The pause before another guard, in milliseconds: whatever killed the last one may kill it, too.
enum { GUARD_PAUSE = 1000 };

void kill_after(struct helper *helper, int grace) {
  int64_t at = milliseconds() + grace;
  if (helper->kill_at == 0 || at < helper->kill_at) helper->kill_at = at;
}

void close_link(struct helper *helper) {
  if (helper->link < 0) return;
  if (helper->messages < 0) {
    close(helper->link);
  } else if (helper->left < MOST_LEFT) {
    shutdown(helper->link, SHUT_RDWR);
    helper->lefts[helper->left].link = helper->link;
    helper->lefts[helper->left++].messages = helper->messages;
  }
  helper->link = -1;
  helper->messages = -1;
}

bool close_left(struct helper *helper) {
  for (int i = helper->left - 1; i >= 0; i--) {
    char byte;
    ssize_t count;
    do {
      count = recv(helper->lefts[i].messages, &byte, sizeof byte, 0);
    } while (count > 0);
    if (count < 0) continue;
    close(helper->lefts[i].messages);
    close(helper->lefts[i].link);
    helper->lefts[i] = helper->lefts[--helper->left];
  }
  return helper->left < MOST_LEFT;
}

void give_up(struct helper *helper) {
  if (helper->ready) {
    helper->expelled = true;
    if (helper->server > 0) kill(helper->server, SIGKILL);  // first, as a server whose link ends unmounts
    shutdown(helper->link, SHUT_RDWR);
    return;
  }
  helper->failed = true;
  shutdown(helper->link, SHUT_RDWR);  // the server ends when the link does
  if (helper->server > 0) kill(helper->server, SIGTERM);
  kill_after(helper, GRACE_AFTER_FAILURE);
}

// What a service manager keeps goes on when the helper is killed.
static bool wants_guard(const struct helper *helper) {
  return helper->settings->user && helper->service.socket < 0;
}

void renew_guard_soon(struct helper *helper) {
  if (wants_guard(helper) && helper->guard_at == 0) helper->guard_at = milliseconds() + GUARD_PAUSE;
}

void renew_guard(struct helper *helper) {
  helper->guard_at = 0;
  if (!wants_guard(helper)) return;
  const pid_t next = start_guard(helper->settings, &helper->mount);
  if (next < 0) return renew_guard_soon(helper);
  end_guard(helper->guard);  // afterwards, so that there is always one
  helper->guard = next;
}

void take_guard(struct helper *helper) {
  if (helper->guard <= 0 || waitpid(helper->guard, NULL, WNOHANG) != helper->guard) return;
  helper->guard = -1;
  complain("the guard of the mount was killed: another one starts soon");
  renew_guard_soon(helper);
}

void announce(struct helper *helper, char status) {
  if (helper->announce < 0) return;
  // If no process reads the byte, the caller was killed. The mount works all the same.
  ssize_t written = write(helper->announce, &status, 1);
  (void)written;
  close(helper->announce);
  helper->announce = -1;
}
