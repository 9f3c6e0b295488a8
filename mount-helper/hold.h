// What the helper holds for its servers: the mount of the store's filesystem (PROTOCOL.md, "The store's mount").
#pragma once
#include <stdbool.h>

#include "link.h"

struct hold {
  int folder;             // the store's folder (O_PATH); -1 for none
  unsigned char name[8];  // a server's, for itself and the next ones
};

// Keeps what a HOLD brings, in place of what was held. False if the message is none.
bool take_hold(struct hold *hold, struct message *message);

// Sends it to a new server, if there is something. Returns 0, or -1 with errno.
int send_hold(const struct hold *hold, int link);
