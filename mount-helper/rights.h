// What root gives up when it becomes the server of another user.
#pragma once
#include "settings.h"

// Becomes `settings->user` for good, in a process that execs the server next: no capability, no right by a setuid
// program. Its effective group is not the user's. Returns 0, or -1 with errno.
int become_user(const struct settings *settings);

// Refuses, for this process and what it executes (seccomp(2)), other processes, and the calls by which one process
// reaches another. Returns 0, or -1 with errno.
int forbid_calls(void);
