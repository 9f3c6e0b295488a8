// Opens folders of a path that another user may change, without following a symbolic link.
#pragma once

// Opens the folder that contains `path` (absolute), and points `name` at the last component in `path`. Returns -1 with
// errno on failure: ELOOP if the path to the folder contains a symbolic link.
int open_parent(const char *path, const char **name);
