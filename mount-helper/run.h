// How a child of the helper becomes mediafs.
#pragma once
#include <stddef.h>

#include "settings.h"

enum { MOST_PASSED = 2 };

// Becomes the `program` with the arguments `words`. Its standard input is /dev/null, its standard output and error are
// the child's, its descriptors from 3 on are those of `passed` (at most MOST_PASSED), and it has no others. Returns
// only when it cannot, and then `text` says why.
void run_mediafs(const struct settings *settings, int program, char *const *words, const int *passed, int count,
                 char *text, size_t space);
