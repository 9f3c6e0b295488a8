// The program of the servers, and the one that follows it at an upgrade (PROTOCOL.md, "An upgrade").
#pragma once
#include <stdbool.h>
#include <stdint.h>

#include "link.h"
#include "session.h"
#include "settings.h"

enum {
  UPGRADE_PATIENCE = 10000,  // how long the old server may take to end, and the new one to be ready, in milliseconds
  UPGRADE_TEXT = 1024,
};

struct upgrade {
  int program;              // what servers are started from; open, as a package may replace or remove the file
  int next;                 // what is to follow it, or -1
  bool tried;               // a server was started from `next`
  char said[UPGRADE_TEXT];  // why the last server cannot serve, as it says
  char why[UPGRADE_TEXT];   // why the last upgrade failed; empty if it did not
  struct suspects suspects;  // what killed servers of `program`; while a server of `next` is tried
};

// Opens the program of `settings`. Returns 0, or -1 after a message.
int hold_program(struct upgrade *upgrade, const struct settings *settings);

// A server asks for an upgrade: looks for the program where the first server's was, and answers. Returns whether the
// server now ends for it.
bool agree_to_upgrade(struct upgrade *upgrade, const struct settings *settings, int link,
                      const struct message *message);

// Keeps what a server says about why it cannot serve.
void keep_words(struct upgrade *upgrade, const struct message *message);

// A server says that it is prepared, in another version of the protocol.
void keep_version(struct upgrade *upgrade, uint32_t version);

// What the next server is to be started from: it has said nothing yet. The first one of a new program begins without
// suspects: the fault may be mended in it.
int program_to_start(struct upgrade *upgrade, int session);

// Whether the last server that was started is of a new program, and not ready yet.
bool is_trying(const struct upgrade *upgrade);

// The server of the new program is ready: the old program is no longer needed.
void complete_upgrade(struct upgrade *upgrade);

// A server has ended with this status (wait(2)), which is `how` in words, and another is to follow. `lived`: for how
// many milliseconds it did. Returns whether it ended for an upgrade, or the upgrade failed with it: the next one then
// starts at once.
bool follow_upgrade(struct upgrade *upgrade, const struct settings *settings, int session, int status, const char *how,
                    int64_t lived);
