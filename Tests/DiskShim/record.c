// Records every change of the store, for a test that replays them.
#include "parts.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

// What stands before the path, the second path and the data of each record.
struct record {
  uint32_t operation, path, second, data;
  uint64_t inode;
  int64_t offset;
};

static int record_file = -1;
static pthread_mutex_t recording = PTHREAD_MUTEX_INITIALIZER;

void open_record(const char *path) {
  record_file = (int)syscall(SYS_openat, AT_FDCWD, path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
}

bool is_recording(void) { return record_file >= 0; }

static void append(const void *bytes, size_t length) {
  while (length > 0) {
    ssize_t count = syscall(SYS_write, record_file, bytes, length);
    if (count <= 0) abort();
    bytes = (const char *)bytes + count;
    length -= (size_t)count;
  }
}

void note(enum operation operation, const char *path, const char *second, uint64_t inode, int64_t offset,
          const void *data, size_t length) {
  struct record record = {.operation = operation,
                          .path = (uint32_t)strlen(path),
                          .second = (uint32_t)strlen(second),
                          .data = (uint32_t)length,
                          .inode = inode,
                          .offset = offset};
  append(&record, sizeof record);
  append(path, record.path);
  append(second, record.second);
  if (data) append(data, length);
}

void begin_recording(void) {
  if (record_file >= 0) pthread_mutex_lock(&recording);
}

void end_recording(void) {
  int saved = errno;
  if (record_file >= 0) pthread_mutex_unlock(&recording);
  errno = saved;
}
