// Finds servers that hang: PROTOCOL.md, "The watchdog".
#pragma once
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "work.h"

struct watchdog {
  int limit;             // how long a thread may be busy with the same thing, in milliseconds; 0 for ever
  int session;
  int replaced;          // how many servers in a row were replaced
  int64_t replaced_at;   // when the last one was, in milliseconds of CLOCK_MONOTONIC
  int64_t look_at;       // when the next look is due
  int disk_looks;        // how many looks in a row found that threads wait for the disk
  bool is_trial;         // a hang of this server costs its readers the plain limit
  bool told;             // the log says that the disk does not answer, or that the helper cannot see the threads
  struct {
    uint64_t turn;  // what the thread was busy with at the last look
    int looks;      // how many looks in a row found it busy with that; 0: it rests
    uint32_t id;    // the thread's number for the kernel, as the server wrote it
  } threads[WORK_THREADS + 1];  // the last one: the start of a server
};

// Begins to watch another server. `is_trial`: its readers were answered with errors until now, so that the limit is not
// twice as long after each replacement.
void begin_watch(struct watchdog *watchdog, bool is_trial);

// Another program has come up: its limit is the plain one.
void forget_hangs(struct watchdog *watchdog);

// How long until the next look, in milliseconds; -1 for ever.
int until_look(const struct watchdog *watchdog);

// Looks at the server, if that is due. True if it hangs and is to be replaced; the log says why. `started`: it sent
// READY.
bool server_hangs(struct watchdog *watchdog, pid_t server, bool started);
