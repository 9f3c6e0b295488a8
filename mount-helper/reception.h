// The server's messages, on a thread that may wait (SECURITY.md, "What comes from outside").
#pragma once
#include <stdbool.h>

// A message of the thread's own: the server broke the protocol. The value is an errno.
enum { MESSAGE_BROKEN = 255 };

// Receives the messages of the server at the other end of `link` on a thread of its own, and passes them on with those
// descriptors alone that nobody has to wait for: folders, files on a disk, and those that read and write nothing. The
// thread closes others. `for_user`: the server is another user's. Of a LOG, the value says whether it came with a
// device.
//
// Returns a socket that does not block, or -1 after a message. The link's end, or a breach of the protocol
// (MESSAGE_BROKEN), is the last that it brings: from its end on, the caller may close `link`.
int start_reception(int link, bool for_user);
