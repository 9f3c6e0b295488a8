// Folders of a path that another user may have a hand in: reached without following any link on the way.
#pragma once

// Opens the folder that `path` (absolute) lies in, and sets `name` to its last component within `path`. -1 with errno;
// ELOOP when a symbolic link is on the way.
int open_parent(const char *path, const char **name);
