// What the test wants of the shim: whom it looks at, when it kills, and which operations fail.
#include "parts.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

struct disk_control *control;
const char *boot_file;
static char store[PATH_MAX];
static size_t store_length;

bool is_server(void) {
  char line[4096];
  int file = (int)syscall(SYS_openat, AT_FDCWD, "/proc/self/cmdline", O_RDONLY | O_CLOEXEC, 0);
  if (file < 0) return false;
  ssize_t count = syscall(SYS_read, file, line, sizeof line - 1);
  syscall(SYS_close, file);
  if (count <= 0) return false;
  line[count] = 0;
  size_t first = strlen(line) + 1;
  return first < (size_t)count && strcmp(line + first, "serve") == 0;
}

__attribute__((constructor)) static void start(void) {
  const char *control_path = getenv("MEDIAFS_DISK_CONTROL"), *store_path = getenv("MEDIAFS_DISK_STORE");
  if (!control_path || !store_path || !is_server()) return;
  int file = (int)syscall(SYS_openat, AT_FDCWD, control_path, O_RDWR | O_CLOEXEC, 0);
  if (file < 0) return;
  void *page = mmap(NULL, sizeof(struct disk_control), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  syscall(SYS_close, file);
  if (page == MAP_FAILED) return;
  snprintf(store, sizeof store, "%s/", store_path);
  store_length = strlen(store);
  boot_file = getenv("MEDIAFS_DISK_BOOT");
  const char *record_path = getenv("MEDIAFS_DISK_RECORD");
  if (record_path) open_record(record_path);
  control = page;
}

bool path_of(int folder, const char *name, char *path) {
  char link[64], whole[2 * PATH_MAX];
  size_t length = 0;
  if (!name || name[0] != '/') {
    ssize_t count;
    if (folder == AT_FDCWD) {
      count = readlink("/proc/self/cwd", whole, PATH_MAX - 1);
    } else {
      snprintf(link, sizeof link, "/proc/self/fd/%d", folder);
      count = readlink(link, whole, PATH_MAX - 1);
    }
    if (count <= 0) return false;
    length = (size_t)count;
    whole[length] = 0;
    if (name && strcmp(name, ".") != 0) whole[length++] = '/';
  }
  if (name && strcmp(name, ".") != 0) {
    snprintf(whole + length, PATH_MAX, "%s", name);
    length += strlen(whole + length);
  }
  if (length + 1 == store_length && strncmp(whole, store, length) == 0) {
    path[0] = 0;
    return true;
  }
  if (strncmp(whole, store, store_length) != 0) return false;
  snprintf(path, PATH_MAX, "%s", whole + store_length);
  return true;
}

bool starts(const char *text, const char *with) { return strncmp(text, with, strlen(with)) == 0; }

enum disk_kind kind_of_write(const char *path) {
  if (starts(path, "partial/")) return DISK_PARTIAL;
  if (strcmp(path, "catalog.sqlite-wal") == 0) return DISK_LOG;
  if (starts(path, "catalog.sqlite")) return DISK_DATABASE;
  return DISK_OTHER;
}

uint64_t inode_of(int file) {
  struct stat status;
  return fstat(file, &status) == 0 ? status.st_ino : 0;
}

static void die(enum disk_kind kind) {
  __atomic_store_n(&control->killed, 1, __ATOMIC_SEQ_CST);
  (void)kind;
  syscall(SYS_kill, getpid(), SIGKILL);
  for (;;) pause();
}

int enter(enum disk_kind kind, int *phase) {
  *phase = -1;
  __atomic_add_fetch(&control->in_flight[kind], 1, __ATOMIC_SEQ_CST);
  if (__atomic_load_n(&control->kill_kind, __ATOMIC_SEQ_CST) == kind &&
      __atomic_fetch_sub(&control->kill_countdown, 1, __ATOMIC_SEQ_CST) == 0) {
    *phase = (int)control->kill_phase;
    if (*phase == DISK_BEFORE) die(kind);
  }
  int64_t error = __atomic_load_n(&control->error, __ATOMIC_SEQ_CST);
  if (error && (control->error_kinds >> kind & 1)) return (int)error;
  return 0;
}

void leave(enum disk_kind kind, int phase) {
  if (phase >= 0) die(kind);
  int saved = errno;
  __atomic_add_fetch(&control->in_flight[kind], -1, __ATOMIC_SEQ_CST);
  __atomic_add_fetch(&control->done[kind], 1, __ATOMIC_SEQ_CST);
  errno = saved;
}
