// What the threads of a server are busy with, as the session memory says: PROTOCOL.md, "The session memory".
#pragma once
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

enum { WORK_THREADS = 32, WORK_TEXT = 128 };

struct work {
  char thread[24];       // the thread's name
  uint32_t id;           // its number for the kernel, as the server wrote it
  uint64_t turn;         // tells one piece of work from the next one of the thread
  uint32_t died;         // the signal that the thread raised itself; 0: none
  char text[WORK_TEXT];  // the work in words
};

// Reads what the thread `index` is busy with. False if it rests, or if there is none. A server may have written
// anything: every number is bounded here, or is only printed.
bool read_work(int session, int index, struct work *work);

// Says in the log what each thread of the last server was busy with.
void tell_work(int session);
