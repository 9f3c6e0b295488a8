// Opens folders of a path that another user may change, without following a symbolic link.
#pragma once
#include "settings.h"

// Opens the folder that contains `path` (absolute), and points `name` at the last component in `path`. Returns -1 with
// errno on failure: ELOOP if the path to the folder contains a symbolic link.
int open_parent(const char *path, const char **name);

// Removes the folders that the command made for the mountpoint, the innermost first. A folder that another program uses
// by now stays.
void remove_made_folders(const struct settings *settings);
