#include "hold.h"

#include <fcntl.h>
#include <string.h>
#include <unistd.h>

bool take_hold(struct hold *hold, struct message *message) {
  // Only a descriptor that reads and writes nothing: to close one of another kind may wait for whoever serves the file.
  const int flags = message->descriptor < 0 ? 0 : fcntl(message->descriptor, F_GETFL);
  if (flags < 0 || !(flags & O_PATH) || message->length != sizeof hold->name) return false;
  if (hold->folder >= 0) close(hold->folder);
  hold->folder = message->descriptor;
  memcpy(hold->name, message->payload, sizeof hold->name);
  message->descriptor = -1;
  return true;
}

int send_hold(const struct hold *hold, int link) {
  if (hold->folder < 0) return 0;
  return link_send(link, MESSAGE_HELD, 0, hold->name, sizeof hold->name, hold->folder);
}
