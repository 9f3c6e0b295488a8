// The helper's life: PROTOCOL.md, "Messages" and "The end".
#pragma once
#include "settings.h"

// Starts the server, mounts, and stays until both are gone; returns the exit status. `announce` is a descriptor that
// gets one byte, 0 once the mount answers or 1 when it failed; -1 in the foreground. The signals must be blocked
// already (block_signals).
int supervise(const struct settings *settings, int announce);

// Blocks the signals that supervise() takes from a descriptor; before any fork of the helper's own.
void block_signals(void);
