// What the helper tells everybody who lists processes: why no server serves the mount (PROTOCOL.md, `--state`).
#pragma once
#include "settings.h"

// Writes it into the helper's argument, in the place of what is there; an empty text when a server serves. Paths and
// URLs are left out, and what is no plain ASCII: a server said some of it.
__attribute__((format(printf, 2, 3))) void tell_state(const struct settings *settings, const char *format, ...);
