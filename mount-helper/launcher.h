// The launcher starts programs for a server (PROTOCOL.md, "The launcher").
#pragma once
#include "settings.h"

// Starts the launcher of a server, in the process that becomes that server and has given up root's rights, but may
// still start processes. Returns the server's end of the socket between the two, or -1: then no launcher runs, and the
// server, which is told of none, says so.
int start_launcher(const struct settings *settings, int program);
