// Has programs told that watch the mount (PROTOCOL.md, "Watchers").
#pragma once
#include <pthread.h>
#include <stdbool.h>

#include "mount.h"
#include "settings.h"

// A thread of the helper takes a server's orders, and starts a process for each, the waker: who waits inside of his own
// mount cannot be rescued. It never waits for that process for more than five seconds.
struct waking {
  const struct settings *settings;
  struct mount mount;
  int socket;        // the helper's end of the socket pair; -1 without a thread
  int ended;         // an eventfd, readable once the thread has ended
  bool is_stuck;     // the thread did not end: it waits for a descriptor that a server sent
  bool is_writable;  // the filesystem, because of a waker
  pid_t left;        // a waker that was killed and has not ended yet; 0: none
  pthread_t thread;
};

// Starts the thread for a server. Returns the server's end of the socket pair, or -1 after a message.
int start_waking(struct waking *waking, const struct mount *mount);

// The mount is an earlier helper's, whose waker may have left its filesystem writable. Before the first thread.
void adopt_filesystem(struct waking *waking);

// Ends the thread, and the waker.
void end_waking(struct waking *waking);
