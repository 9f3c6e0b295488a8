// The link between helper and server: PROTOCOL.md, "Messages".
#pragma once
#include <stddef.h>
#include <stdint.h>

enum { PROTOCOL_VERSION = 5, PAYLOAD_LIMIT = 8192 };

enum message_type {
  MESSAGE_OPTIONS = 1,
  MESSAGE_INPUT = 2,
  MESSAGE_START = 3,
  MESSAGE_MOUNTED = 4,
  MESSAGE_SESSION = 5,
  MESSAGE_NOTICES = 6,
  MESSAGE_VERDICT = 7,
  MESSAGE_KEPT = 8,
  MESSAGE_BACKING = 9,
  MESSAGE_HELD = 10,
  MESSAGE_WAKING = 11,
  MESSAGE_SERVICE = 12,
  MESSAGE_OPENED = 13,
  MESSAGE_PREPARED = 16,
  MESSAGE_READY = 17,
  MESSAGE_LOG = 18,
  MESSAGE_UPGRADE = 19,
  MESSAGE_FAILED = 20,
  MESSAGE_HOLD = 21,
  MESSAGE_STATE = 22,
  MESSAGE_OPEN = 23,
  // On the socket for complete files.
  MESSAGE_REGISTER = 32,
  MESSAGE_UNREGISTER = 33,
  MESSAGE_REGISTERED = 34,
  // On the socket for watchers.
  MESSAGE_WAKE = 35,
  MESSAGE_WOKEN = 36,
};

// The exit status of a server that ended for an upgrade.
enum { STATUS_HANDED_OVER = 4 };

// The values of STATE.
enum { STATE_SAME = 0, STATE_RELOADS = 1, STATE_RELOADED = 2 };

struct message {
  uint32_t type;
  uint32_t value;
  unsigned char payload[PAYLOAD_LIMIT];
  size_t length;   // of the payload
  int descriptor;  // the receiver closes it; -1 for none
};

// Sends one message. `descriptor` is -1 for none; the caller keeps it. Returns 0, or -1 with errno.
int link_send(int link, uint32_t type, uint32_t value, const void *payload, size_t length, int descriptor);

// Receives one message. Returns 1, 0 at the end of the link, or -1 with errno (EPROTO if it is not a message).
int link_receive(int link, struct message *message);
