// What the helper was called with, and who owns the mount.
#pragma once
#include <stdbool.h>
#include <sys/types.h>

struct settings {
  const char *mountpoint;     // absolute, without symbolic links
  const char *server;         // the program to run as `mediafs serve`
  const char *mount_options;  // for libfuse, comma-separated
  int options_fd;             // the server's options
  int input_fd;               // the manifest from standard input, or -1
  int made_folders;           // how many folders of the mountpoint's path to remove if the mount fails
  bool foreground;
  const char *user;  // who the server is to be; NULL: who the helper is
  const char *home;  // that user's home and shell; set if `user` is
  const char *shell;
  uid_t uid;  // the mount's owner: the user's, else the helper's own
  gid_t gid;
};
