#include "session.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/fuse.h>
#include <poll.h>
#include <string.h>
#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include "complain.h"

// A limit of the size of files (ulimit -f) holds for memory files, too.
static int resize(int session) {
  struct rlimit limit, most;
  signal(SIGXFSZ, SIG_IGN);
  getrlimit(RLIMIT_FSIZE, &limit);
  most = (struct rlimit){.rlim_cur = limit.rlim_max, .rlim_max = limit.rlim_max};
  setrlimit(RLIMIT_FSIZE, &most);
  const int result = ftruncate(session, SESSION_SIZE);
  const int error = errno;
  setrlimit(RLIMIT_FSIZE, &limit);
  errno = error;
  return result;
}

int create_session(void) {
  const int seals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;
  int session = memfd_create("mediafs session", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  if (session < 0 || resize(session) != 0 || fcntl(session, F_ADD_SEALS, seals) != 0) {
    complain("cannot create the memory of the mount: %s", strerror(errno));
    if (session >= 0) close(session);
    return -1;
  }
  return session;
}

uint32_t session_version(int session) {
  uint32_t version = 0;
  return pread(session, &version, sizeof version, SESSION_VERSION_AT) == sizeof version ? version : 0;
}

bool was_served(int session) {
  uint32_t length = 0;
  uint64_t first = 0;
  return pread(session, &length, sizeof length, SESSION_INIT_LENGTH) == sizeof length && length != 0 &&
         pread(session, &first, sizeof first, SESSION_FIRST_ID) == sizeof first && first != 0;
}

uint64_t count_answers(int session) {
  uint64_t sum = 0;
  for (int i = 0; i < SESSION_BUFFER_COUNT; i++) {
    uint64_t count = 0;
    if (pread(session, &count, sizeof count, SESSION_THREADS + i * SESSION_THREAD_SIZE) == sizeof count) sum += count;
  }
  return sum;
}

// What a server wrote stays if a pwrite of these should fail: at worst, requests are refused that another program could
// answer.
static void put(int session, const void *bytes, size_t size, off_t at) {
  ssize_t written = pwrite(session, bytes, size, at);
  (void)written;
}

void take_suspects(int session, struct suspects *suspects) {
  static const struct suspects none;
  if (pread(session, suspects, sizeof *suspects, SESSION_SUSPECTS) != sizeof *suspects) *suspects = none;
  put(session, &none, sizeof none, SESSION_SUSPECTS);
  for (int i = 0; i < SESSION_BUFFER_COUNT; i++)
    put(session, &none, sizeof(uint32_t), SESSION_THREADS + i * SESSION_THREAD_SIZE + SESSION_THREAD_DIED);
}

void return_suspects(int session, const struct suspects *suspects) {
  put(session, suspects, sizeof *suspects, SESSION_SUSPECTS);
}

// Whether a thread of the last server raised a signal as it served the request of buffer `index`. One may have served
// what an earlier server had left in another thread's buffer.
static bool is_deadly(int session, int index) {
  for (int i = 0; i < SESSION_BUFFER_COUNT; i++) {
    struct {
      uint32_t died, request;
    } record;
    const off_t at = SESSION_THREADS + i * SESSION_THREAD_SIZE + SESSION_THREAD_DIED;
    if (pread(session, &record, sizeof record, at) != sizeof record || record.died == 0) continue;
    if (record.request == 0 ? i == index : record.request == SESSION_BUFFERS + (uint32_t)index * SESSION_BUFFER_SIZE)
      return true;
  }
  return false;
}

// How many requests are refused before the helper looks at anything else.
enum { MOST_REFUSED = 64 };

// Answers one request. The server wrote the memory, and may have written anything: the kernel ignores an answer to a
// request that it does not have.
static void refuse(int device, const struct fuse_in_header *request) {
  struct fuse_out_header answer = {.len = sizeof answer, .error = -EIO, .unique = request->unique};
  if (request->unique == 0) return;  // it is answered
  switch (request->opcode) {
    case FUSE_FORGET:
    case FUSE_BATCH_FORGET:
    case FUSE_INTERRUPT: return;  // the kernel expects no answer
    case FUSE_RELEASE:
    case FUSE_RELEASEDIR: answer.error = 0; break;
  }
  ssize_t written = write(device, &answer, sizeof answer);
  (void)written;  // ENOENT: it is answered. ENODEV: the mount is gone
}

// The kernel closes a handle: the next server must not count it. What names the handle is the kernel's.
static void forget_handle(int session, const struct fuse_in_header *request, const struct fuse_release_in *release) {
  struct {
    uint64_t unique, inode;
  } record;
  const uint64_t none = 0;
  const uint32_t place = (uint32_t)release->fh;
  const off_t at = SESSION_HANDLES + (off_t)place * SESSION_HANDLE_SIZE;
  if (place >= SESSION_HANDLE_COUNT || pread(session, &record, sizeof record, at) != sizeof record) return;
  if (record.inode != request->nodeid || (uint32_t)record.unique != release->fh >> 32) return;
  ssize_t written = pwrite(session, &none, sizeof none, at);
  (void)written;  // it stays: the inode counts as open until the mount ends
}

// A whole request, as it was read.
struct request {
  struct fuse_in_header header;
  struct fuse_release_in release;
};

// How many OPENs that are refused are looked for among the handles, at once. The handle of another one counts as open
// until the mount ends.
enum { MOST_OPENS = 64 };

// The kernel never gets the handle of an OPEN that is refused, so it never closes it.
static void forget_open(int session, const struct fuse_in_header *request, int *budget) {
  if ((*budget)-- <= 0) return;  // a server may have left as many as there is room for
  static struct {
    uint64_t unique, inode, rest[2];
  } handles[2048];
  _Static_assert(sizeof *handles == SESSION_HANDLE_SIZE, "PROTOCOL.md, \"The session memory\"");
  const uint64_t none = 0;
  uint32_t mark = 0;
  if (pread(session, &mark, sizeof mark, SESSION_HANDLE_MARK) != sizeof mark || mark > SESSION_HANDLE_COUNT)
    mark = SESSION_HANDLE_COUNT;
  for (uint32_t first = 0; first < mark; first += sizeof handles / sizeof *handles) {
    const off_t at = SESSION_HANDLES + (off_t)first * SESSION_HANDLE_SIZE;
    const ssize_t size = pread(session, handles, sizeof handles, at);
    for (ssize_t i = 0; i < size / SESSION_HANDLE_SIZE; i++)
      if (handles[i].unique == request->unique && handles[i].inode == request->nodeid)
        put(session, &none, sizeof none, at + i * SESSION_HANDLE_SIZE);
  }
}

static void refuse_whole(int session, int device, const struct request *request, ssize_t length) {
  if (request->header.opcode == FUSE_RELEASE && length >= (ssize_t)sizeof *request)
    forget_handle(session, &request->header, &request->release);
  refuse(device, &request->header);
}

void refuse_taken(int session, int device) {
  struct {
    uint32_t length;
    char rest[SESSION_SLOT_REQUEST - sizeof(uint32_t)];
    struct fuse_in_header request;
  } slot;
  const uint32_t none = 0;
  int opens = MOST_OPENS;
  for (int i = 0; i < SESSION_BUFFER_COUNT; i++) {
    const off_t at = SESSION_BUFFERS + (off_t)i * SESSION_BUFFER_SIZE;
    struct request request;
    if (pread(session, &request, sizeof request, at) != sizeof request || request.header.len == 0) continue;
    if (request.header.opcode == FUSE_OPEN && request.header.unique != 0) forget_open(session, &request.header, &opens);
    refuse_whole(session, device, &request, request.header.len);
    // If one stays, the next server answers it again, which is harmless.
    const uint64_t answered = 0;
    if (is_deadly(session, i))
      put(session, &answered, sizeof answered, at + (off_t)offsetof(struct fuse_in_header, unique));
    else
      put(session, &none, sizeof none, at);
  }
  for (int i = 0; i < SESSION_SLOT_COUNT; i++) {
    const off_t at = SESSION_SLOTS + (off_t)i * SESSION_SLOT_SIZE;
    if (pread(session, &slot, sizeof slot, at) != sizeof slot || slot.length == 0) continue;
    if (slot.request.opcode == FUSE_OPEN && slot.request.unique != 0) forget_open(session, &slot.request, &opens);
    refuse(device, &slot.request);
    put(session, &none, sizeof none, at);  // the request's bytes stay: the next server counts it if it was deadly
  }
}

bool refuse_unread(int session, int device) {
  static char buffer[SESSION_BUFFER_SIZE] __attribute__((aligned(8)));
  const int flags = fcntl(device, F_GETFL);
  if (flags < 0 || fcntl(device, F_SETFL, flags | O_NONBLOCK) != 0) return true;
  bool can_read = true;
  // Programs may ask again at once: the helper looks at its signals in between.
  for (int i = 0; i < MOST_REFUSED; i++) {
    const ssize_t count = read(device, buffer, sizeof buffer);
    can_read = count >= 0 || errno != EINVAL;
    if (count < 0 && errno != ENOENT && errno != EINTR) break;  // ENOENT: the kernel withdrew a request
    if (count >= (ssize_t)sizeof(struct fuse_in_header))
      refuse_whole(session, device, (const struct request *)buffer, count);
  }
  fcntl(device, F_SETFL, flags);  // a server waits in read(2)
  return can_read;
}
