// Has the lists of a mount for another user opened anew (PROTOCOL.md, "The lists").
#pragma once
#include <stdbool.h>
#include <stdint.h>

#include "settings.h"

// One process at a time opens them, and the helper never waits for it.
struct opening {
  pid_t process;    // 0: none
  int64_t kill_at;  // when it is of no use any more
  bool is_due;      // a server has asked since that one was started
  uint32_t number;  // its last OPEN
};

// A server asks by the OPEN of that number. `program` is its own, `link` the link to it.
void open_lists(struct opening *opening, const struct settings *settings, int program, int link, uint32_t number);

// A child has ended. If it is that process, the next one starts if it is due.
void take_opener(struct opening *opening, const struct settings *settings, int program, int link);

// Nobody waits any more for what was asked for: the server has ended.
void forget_asked(struct opening *opening);

// Ends the process.
void end_opening(struct opening *opening);
