// The waker: a short-lived process that does through the mount what programs that watch it are told (PROTOCOL.md,
// "Watchers").
#pragma once
#include <stddef.h>

#include "mount.h"
#include "settings.h"

// Turns this process, a child of the helper's, into the waker, which carries out `orders` and exits with 0 or an errno.
// It may wait for the server, which answers what it does.
_Noreturn void become_waker(const struct settings *settings, const struct mount *mount, const char *orders,
                            size_t length);

// Turns this process, a child of the helper's, into one that makes the filesystem read-only again, as it was before the
// first waker. It exits with 0 or an errno: EBUSY while a waker that was killed has not ended.
_Noreturn void become_restorer(const struct mount *mount);
