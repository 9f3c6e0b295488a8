#include "messages.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "backing.h"
#include "clock.h"
#include "complain.h"
#include "hold.h"
#include "kept.h"
#include "kinds.h"
#include "link.h"
#include "mounting.h"
#include "notices.h"
#include "opening.h"
#include "read_ahead.h"
#include "reception.h"
#include "relay.h"
#include "service.h"
#include "state.h"
#include "upgrade.h"
#include "waking.h"
#include "watchdog.h"

// How long the helper waits for the messages of a server that has ended, in milliseconds.
enum { PATIENCE = 500 };

// The mount is ready: detaches from the terminal, then lets the caller return.
static void detach(struct helper *helper) {
  if (helper->settings->foreground) return;
  end_relay();  // the server has its log: what it wrote before goes to the caller
  int null = open("/dev/null", O_RDWR | O_CLOEXEC);
  if (null >= 0) {
    dup2(null, STDIN_FILENO);
    dup2(null, STDOUT_FILENO);
    dup2(helper->log >= 0 ? helper->log : null, STDERR_FILENO);
    close(null);
  }
  complain_on_a_thread();  // the log waits for its disk, and for whoever holds a lock of it
  renew_guard(helper);  // one that does not keep the caller's terminal or pipe
  announce(helper, 0);
}

// Directs the helper's messages to the server's log file. The server may have fewer rights than the helper, so the
// helper accepts only a regular file, and writes nothing but its own messages to it. A user's filesystem may answer no
// write (reception.h).
static void take_log(struct helper *helper, struct message *message) {
  const bool is_chosen = message->value != 0;  // a device (--log-file /dev/null)
  const bool is_first = !helper->logged;
  helper->logged = true;
  if (message->descriptor < 0 || !is_regular(message->descriptor)) {
    if (!is_chosen && is_first)
      complain("the log of %s is not on a disk: the mount helper does not write to it", helper->settings->mountpoint);
    return;
  }
  if (helper->log >= 0) close(helper->log);
  helper->log = message->descriptor;
  message->descriptor = -1;
  if (!helper->ready || helper->settings->foreground) return;
  dup2(helper->log, STDERR_FILENO);
  renew_guard_soon(helper);
}

// Makes the helper ready for a server that has the device: what it does for the server, it does on threads of its own.
static void send_mount(struct helper *helper, int library) {
  const int files = start_backing(&helper->backing, helper->mount.device_fd, helper->session, library);
  const int orders = start_waking(&helper->waking, &helper->mount);
  // If a send fails, the server has ended.
  if (files >= 0 && orders >= 0 &&
      link_send(helper->link, MESSAGE_NOTICES, 0, NULL, 0, helper->notices.for_servers) == 0 &&
      link_send(helper->link, MESSAGE_BACKING, 0, NULL, 0, files) == 0 &&
      link_send(helper->link, MESSAGE_WAKING, 0, NULL, 0, orders) == 0)
    link_send(helper->link, MESSAGE_MOUNTED, helper->mount.device, NULL, 0, helper->mount.device_fd);
  if (files < 0 || orders < 0) give_up(helper);
  if (files >= 0) close(files);
  if (orders >= 0) close(orders);
}

// A service manager gets the mount at once: from now on it goes on when the helper is killed.
static int mount_and_keep(struct helper *helper) {
  if (mount_filesystem(helper->settings, &helper->mount) != 0) return -1;
  if (helper->service.socket < 0) return 0;
  return keep_mount(&helper->service, helper->settings, &helper->mount, helper->session);
}

static void take_state(struct helper *helper, const struct message *message) {
  char text[SERVICE_STATUS];
  const int length = message->length < sizeof text ? (int)message->length : (int)sizeof text - 1;
  snprintf(text, sizeof text, "%.*s", length, (const char *)message->payload);
  if (length > 0) set_status(&helper->service, text);
  if (message->value != STATE_SAME) helper->service.reloading = message->value == STATE_RELOADS;
}

static void take_message(struct helper *helper, struct message *message) {
  switch (message->type) {
    case MESSAGE_PREPARED:
      if (message->value != PROTOCOL_VERSION) keep_version(&helper->upgrade, message->value);
      if (message->value != PROTOCOL_VERSION || helper->prepared) break;
      helper->prepared = true;
      if (helper->refusing) begin_watch(&helper->watchdog, true);
      helper->refusing = false;  // from now on the server reads the requests
      if ((helper->mount.device_fd < 0 && mount_and_keep(helper) != 0) ||
          start_notices(&helper->notices, helper->mount.device_fd) != 0) {
        give_up(helper);
      } else {
        if (helper->guard < 0) renew_guard(helper);
        send_mount(helper, message->descriptor);
      }
      return;
    case MESSAGE_READY:
      if (!helper->prepared) break;
      helper->served = true;
      tell_state(helper->settings, "%s", "");
      helper->adopted = false;
      helper->service.reloading = false;
      helper->service.ready = true;
      set_status(&helper->service, "Serves");
      if (is_trying(&helper->upgrade)) {
        complete_upgrade(&helper->upgrade);
        forget_hangs(&helper->watchdog);
        helper->mute = 0;
        if (helper->stops == 0) helper->kill_at = 0;
      }
      if (helper->ready) return;
      helper->ready = true;
      raise_read_ahead(helper->mount.device);
      detach(helper);
      return;
    case MESSAGE_LOG:
      take_log(helper, message);
      return;
    case MESSAGE_UPGRADE:
      // One at a time, and of a server that serves.
      if (!helper->served || helper->upgrade.next >= 0 || message->length != 16) break;
      if (agree_to_upgrade(&helper->upgrade, helper->settings, helper->link, message) && helper->stops == 0)
        kill_after(helper, UPGRADE_PATIENCE);
      return;
    case MESSAGE_HOLD:
      if (helper->prepared || !take_hold(&helper->hold, message)) break;
      return;
    case MESSAGE_STATE:
      if (!helper->served || helper->service.socket < 0 || message->value > STATE_RELOADED) break;
      take_state(helper, message);
      return;
    case MESSAGE_OPEN:
      if (!helper->served || !helper->settings->user || message->length != 0 || message->descriptor >= 0) break;
      open_lists(&helper->opening, helper->settings, helper->upgrade.program, helper->link, message->value);
      return;
    case MESSAGE_FAILED:
      keep_words(&helper->upgrade, message);
      return;
    case MESSAGE_BROKEN:
      complain("the server breaks the protocol: %s", strerror((int)message->value));
      return give_up(helper);
  }
  complain("the server breaks the protocol (message %u, value %u): do helper and server have the same version?",
           message->type, message->value);
  give_up(helper);
}

// Whether there may be more.
static bool take_one(struct helper *helper) {
  static struct message message;
  const int result = link_receive(helper->messages, &message);
  if (result == 1) {
    if (!helper->expelled && !helper->failed) take_message(helper, &message);
    if (message.descriptor >= 0) close(message.descriptor);
    return true;
  }
  if (result < 0 && errno == EAGAIN) return false;
  close(helper->messages);  // the server is about to end; SIGCHLD brings its status
  helper->messages = -1;
  return false;
}

void take_link(struct helper *helper) { take_one(helper); }

void drain_link(struct helper *helper) {
  // Another process may have the server's end of the link, and send or not send for ever.
  const int64_t end = milliseconds() + PATIENCE;
  for (int64_t left; helper->messages >= 0 && (left = end - milliseconds()) > 0;) {
    struct pollfd next = {.fd = helper->messages, .events = POLLIN};
    if (poll(&next, 1, (int)left) > 0) take_one(helper);
  }
}
