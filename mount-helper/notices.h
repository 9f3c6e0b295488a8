// The server's notifications to the kernel (PROTOCOL.md, "Notices").
#pragma once
#include <pthread.h>

#include "mounting.h"

// The helper writes them on a thread of its own: the kernel may block the writer until a request is answered. If a
// thread of the server waited there when the server is killed, the server could not end, nor the next one begin.
struct notices {
  int from_servers;  // the helper's end of the socket pair; -1 without a thread
  int for_servers;   // the end that each server gets
  int ended;         // an eventfd, readable once the thread has ended
  int device;
  pthread_t thread;
};

// Starts the thread, which writes to `device`, unless it runs: a server can end it for itself and the next ones.
// Returns 0, or -1 after a message.
int start_notices(struct notices *notices, int device);

// Has the thread end while a server still answers what the kernel may hold it for. Waits for that for a second.
void hush_notices(struct notices *notices);

// Ends the thread. Call it while no server runs: until the thread has ended, this answers requests with an error, and
// after a second it aborts the connection of the mount. A thread that even then waits for a folder that a program holds
// is left behind, and the process ends when that program lets go of it.
void end_notices(struct notices *notices, int session, const struct mount *mount);
