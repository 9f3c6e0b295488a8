// What a build knows of itself.
#pragma once

/// The commit that the program was built from, with a plus sign behind it if files differed from that commit; empty if
/// the build does not know it. A C file of its own holds it, so that another commit costs a release one small
/// compilation and a link. Only `make release` passes it: a build for debugging is the same for every commit.
const char *cbuild_commit(void);
