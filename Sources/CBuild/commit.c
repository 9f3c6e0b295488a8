#include "CBuild.h"

#ifndef MEDIAFS_COMMIT
#define MEDIAFS_COMMIT ""
#endif

const char *cbuild_commit(void) { return MEDIAFS_COMMIT; }
