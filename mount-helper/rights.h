// What root gives up when it becomes the server of another user.
#pragma once
#include "settings.h"

// Becomes `settings->user` for good, in a process that execs the server next: no capability, no right by a setuid
// program, no other process. Its effective group is not the user's. Returns 0, or -1 with errno.
int become_user(const struct settings *settings);
