// A server that does not come up: the first one that finds the file of MEDIAFS_START does what it says.
#include "parts.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

// Says to the helper that it is prepared, in another version of the protocol.
static void prepare(uint32_t version) {
  const uint32_t message[2] = {16, version};
  send(3, message, sizeof message, MSG_NOSIGNAL);
}

// What a program that knows a newer format does to the catalog of an upgrade, before it finds that it cannot serve.
static void raise_format(void) {
  char path[4096], copy[4096], page[65536];
  const char *store = getenv("MEDIAFS_DISK_STORE");
  if (!store) return;
  snprintf(path, sizeof path, "%s/catalog.sqlite", store);
  snprintf(copy, sizeof copy, "%s/catalog.sqlite-before", store);
  const int from = (int)syscall(SYS_openat, AT_FDCWD, path, O_RDWR | O_CLOEXEC, 0);
  const int to = (int)syscall(SYS_openat, AT_FDCWD, copy, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
  ssize_t count;
  while ((count = syscall(SYS_read, from, page, sizeof page)) > 0) syscall(SYS_write, to, page, count);
  syscall(SYS_pwrite64, from, "\377", (size_t)1, (off_t)63);  // the last byte of user_version: a format of later
}

__attribute__((constructor)) static void misbehave(void) {
  const char *path = getenv("MEDIAFS_START");
  char what[16] = {0};
  if (!path || !is_server()) return;
  int file = (int)syscall(SYS_openat, AT_FDCWD, path, O_RDONLY | O_CLOEXEC, 0);
  if (file < 0) return;
  ssize_t count = syscall(SYS_read, file, what, sizeof what - 1);
  syscall(SYS_close, file);
  if (count <= 0 || syscall(SYS_unlinkat, AT_FDCWD, path, 0) != 0) return;
  if (strcmp(what, "crash") == 0) {
    signal(SIGSEGV, SIG_DFL);
    raise(SIGSEGV);
  }
  if (strcmp(what, "raise") == 0) raise_format();
  if (strcmp(what, "exit") == 0 || strcmp(what, "raise") == 0) _exit(1);
  if (strcmp(what, "succeed") == 0) _exit(0);
  if (strcmp(what, "version") == 0) prepare(99);
  if (strcmp(what, "hang") == 0 || strcmp(what, "version") == 0) pause();
  // Then the server itself finds that it cannot work.
  if (strncmp(what, "starve", 6) != 0) return;
  const rlim_t descriptors = what[6] ? (rlim_t)atoi(what + 6) : 6;
  const struct rlimit few = {.rlim_cur = descriptors, .rlim_max = descriptors};
  setrlimit(RLIMIT_NOFILE, &few);
}
