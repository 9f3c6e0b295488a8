// Runs the helper: PROTOCOL.md, "Messages" and "The end".
#pragma once
#include "settings.h"

// Starts the server, mounts, stays until the server has exited, and unmounts. Returns the exit status. It writes one
// byte to the descriptor `announce` (-1 in the foreground): 0 when the mount is ready, 1 if mounting failed. The caller
// must have blocked the signals (block_signals).
int supervise(const struct settings *settings, int announce);

// Blocks the signals that supervise() reads from a descriptor. Call it before the helper forks.
void block_signals(void);
