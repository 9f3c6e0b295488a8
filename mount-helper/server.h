// The server process.
#pragma once
#include <sys/types.h>

#include "settings.h"

// Makes this process undumpable: no other process of its user's reads its memory, its environment or its descriptors
// (root does). exec and changes of ids undo it.
void hide_from_others(void);

// Starts `mediafs serve --helper-fd 3` and tells it to prepare. Its process id, with our end of the link in `*link`; -1
// when stderr says why not.
pid_t start_server(const struct settings *settings, int *link);
