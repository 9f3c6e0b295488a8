// A disk that loses what was written and not synced.
#include "parts.h"

#include <pthread.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

static struct {
  uint64_t inode;
  int64_t offset;
  size_t length;
} unsynced[1 << 16];
static size_t unsynced_count;
static pthread_mutex_t losing = PTHREAD_MUTEX_INITIALIZER;

void remember_unsynced(int file, int64_t offset, size_t length) {
  pthread_mutex_lock(&losing);
  if (unsynced_count == sizeof unsynced / sizeof *unsynced) abort();
  unsynced[unsynced_count].inode = inode_of(file);
  unsynced[unsynced_count].offset = offset;
  unsynced[unsynced_count++].length = length;
  pthread_mutex_unlock(&losing);
}

void settle_unsynced(int file, bool is_lost) {
  static const char zeros[1 << 16];
  uint64_t inode = inode_of(file);
  pthread_mutex_lock(&losing);
  size_t kept = 0;
  for (size_t i = 0; i < unsynced_count; i++) {
    if (unsynced[i].inode != inode) {
      unsynced[kept++] = unsynced[i];
      continue;
    }
    for (size_t done = 0; is_lost && done < unsynced[i].length; done += sizeof zeros) {
      size_t rest = unsynced[i].length - done;
      size_t count = rest < sizeof zeros ? rest : sizeof zeros;
      if (syscall(SYS_pwrite64, file, zeros, count, unsynced[i].offset + (int64_t)done) != (ssize_t)count) abort();
    }
  }
  unsynced_count = kept;
  pthread_mutex_unlock(&losing);
}
