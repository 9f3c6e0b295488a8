// The helper's arguments, and the owner of the mount.
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include "service.h"

struct settings {
  const char *mountpoint;     // absolute, without symbolic links
  const char *server;         // the program to run as `mediafs serve`
  const char *mount_options;  // for libfuse, comma-separated
  int options_fd;             // the server's options
  int input_fd;               // the manifest from standard input, or -1
  int made_folders;           // how many folders of the mountpoint's path to remove if the mount fails
  int watchdog;               // how long a thread of the server may hang, in milliseconds; 0 for ever
  char *state;                // the text of --state, which the helper writes (state.h)
  size_t state_length;
  bool foreground;
  bool service;      // a service manager started the helper, and is told how it goes
  struct kept kept;  // what it kept of an earlier helper's mount
  bool launcher;     // whether each server gets a launcher (launcher.h)
  const char *user;  // the user that the server runs as; NULL for the helper's own
  const char *home;  // that user's home and shell; set if `user` is
  const char *shell;
  uid_t uid;  // the owner of the mount: `user`, else the helper's own user
  gid_t gid;
};
