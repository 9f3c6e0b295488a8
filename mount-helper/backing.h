// Complete files, which the kernel reads without the server (PROTOCOL.md, "Complete files").
#pragma once
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "settings.h"

// How many files may be registered at once.
enum { BACKING_LIMIT = 4096 };

// The helper registers them on a thread of its own, because only root may: the server sends an open file and gets the
// kernel's id for it.
struct backing {
  const struct settings *settings;
  int device;
  int socket;        // the helper's end; -1 without a thread
  int ended;         // an eventfd, readable once the thread has ended
  pthread_t thread;
  bool is_stuck;     // a thread did not end: it waits for a filesystem, and keeps what is below
  bool has_library;
  uint64_t library;  // the kernel's number for the mount that the library is on
  int count;         // of ids
  int32_t ids[BACKING_LIMIT];
};

// Takes over the ids that an earlier helper of the mount registered, as far as a handle in the session memory has them.
void adopt_ids(struct backing *backing, int session);

// Makes the helper ready for the next server, when no server has the device: closes the ids that no handle in the
// session memory has, and starts a thread. `library`: the server's library folder, or -1. Returns the server's end of
// the socket, which the caller closes, or -1 after a message.
int start_backing(struct backing *backing, int device, int session, int library);

// Ends the thread, unless it waits for a filesystem.
void end_backing(struct backing *backing);
