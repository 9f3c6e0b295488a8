// The helper's state, for the parts of supervise().
#pragma once
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "backing.h"
#include "hold.h"
#include "mounting.h"
#include "notices.h"
#include "opening.h"
#include "service.h"
#include "settings.h"
#include "upgrade.h"
#include "waking.h"
#include "watchdog.h"

// The most links that are left open.
enum { MOST_LEFT = 16 };

struct helper {
  const struct settings *settings;
  int announce;    // see supervise(); -1 after the announcement
  int session;     // the session memory
  int link;        // the link to the server, for what the helper sends; -1 after its end
  int messages;    // what the server sends (reception.h); -1 after its end
  int left;        // how many links of earlier servers are open: a thread waits for a descriptor that one sent
  struct {
    int link, messages;
  } lefts[MOST_LEFT];
  int signals;     // a signalfd
  int log;         // the log file for messages in the background; -1 until the server sends it
  pid_t server;    // -1 while no server runs
  int status;      // the last server's exit status (wait(2))
  bool prepared;   // this server sent PREPARED
  bool ready;      // the mount is ready: a server sent READY
  bool served;     // this server sent READY
  bool logged;     // this server sent LOG
  bool expelled;   // the helper killed this server: it broke the protocol, or hung
  bool killed;     // this server got SIGKILL after the helper was told to end, or gave up
  bool failed;     // the helper gave up: it exits with 1, whatever the server's status
  bool leaving;    // the service restarts: its manager keeps the mount
  bool adopted;    // the mount is an earlier helper's, and no server of this one has served yet
  bool ended;      // no further server is to start
  bool refusing;   // the helper answers requests with errors, until a server gets the device
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
  struct waking waking;
  struct hold hold;
  struct service service;
  struct opening opening;
  pid_t guard;          // the process that ends the mount if this one is killed; -1 without one
  int64_t guard_at;     // when to start another one; 0 for never
};

// Kills the server in `grace` milliseconds, if it is not to be killed earlier.
void kill_after(struct helper *helper, int grace);

// Closes the helper's ends of the link. The link is left open while the server's messages have not ended.
void close_link(struct helper *helper);

// Closes the links that were left open and whose messages have ended. False if MOST_LEFT are open.
bool close_left(struct helper *helper);

// An error of the helper, or of the protocol: ends the server and ignores further messages of it. Once the mount is
// ready, the next server goes on.
void give_up(struct helper *helper);

// Starts the mount's guard, if it is to have one, with the helper's present standard descriptors; the last one ends.
void renew_guard(struct helper *helper);

// The same, in a moment: a server may send one log file after another.
void renew_guard_soon(struct helper *helper);

// A child has ended. If it is the guard, another one is due.
void take_guard(struct helper *helper);

// Lets the caller return: 0 when the mount is ready, 1 if mounting failed. Only once.
void announce(struct helper *helper, char status);
