#pragma once
#include <sys/types.h>

#include "mounting.h"

// Starts a process of root's, `mount-guard`, that ends the mount if this one ends before end_guard(), because a server
// for `user=NAME` gets no right to. Its standard descriptors are this process's. Returns its number, or -1 after a
// message.
pid_t start_guard(const struct settings *settings, const struct mount *mount);

// Ends that process. Call it when no more threads of the helper need the mount.
void end_guard(pid_t guard);
