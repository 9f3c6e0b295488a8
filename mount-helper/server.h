// The server process.
#pragma once
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "hold.h"
#include "settings.h"

// Makes this process undumpable: other processes of its user cannot read its memory, its environment or its descriptors
// (root can). exec and changes of ids undo it.
void hide_from_others(void);

// In a child that execs a program for the mount's user next: becomes that user, if there is one, without the caller's
// terminal (relay.h), in a session of its own, with no signal blocked. Ends the process after a message if it cannot.
void begin_program(const struct settings *settings);

// Starts `mediafs serve --helper-fd 3` from the open file `program`, after `before` other servers of the mount, and
// sends it the options, the session memory, `kept` (why an upgrade failed; empty if none did) and what the helper
// holds. `managed`: a service manager keeps the mount if the helper dies. Returns its process id, and puts the helper's
// end of the link into `*link` and what the server sends into `*messages`; returns -1 after a message on stderr.
pid_t start_server(const struct settings *settings, int program, int session, uint32_t before, const char *kept,
                   const struct hold *hold, bool managed, int *link, int *messages);
