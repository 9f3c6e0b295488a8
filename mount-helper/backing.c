#include "backing.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/fsuid.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "complain.h"
#include "descriptors.h"
#include "kinds.h"
#include "link.h"
#include "server.h"
#include "session.h"

// linux/fuse.h 7.40, which the headers of this machine may not have.
struct backing_map {
  int32_t file;
  uint32_t flags;
  uint64_t padding;
};
#define BACKING_OPEN _IOW(229, 1, struct backing_map)
#define BACKING_CLOSE _IOW(229, 2, uint32_t)

// How long the helper waits for the thread's end, in milliseconds.
enum { PATIENCE = 1000 };

// The kernel opens a registered file anew for each reader, with the rights of the thread that registered it, and a
// filesystem may look at them: NFS refuses root what it gives the user. So the thread has the user's rights to files.
// Only this thread changes (setgroups(2) by syscall), and only its filesystem ids: the user cannot signal it.
static bool take_rights(const struct settings *settings) {
  if (!settings->user) return true;
  if (syscall(SYS_setgroups, 0, NULL) != 0) return false;
  setfsgid(settings->gid);
  setfsuid(settings->uid);
  hide_from_others();  // again, because the change of ids may have undone it (fs.suid_dumpable)
  return (gid_t)setfsgid(-1) == settings->gid && (uid_t)setfsuid(-1) == settings->uid;
}

// Whether the server may have the kernel read `file`: 0, or a negated errno.
static int check(const struct backing *backing, int file) {
  const int flags = fcntl(file, F_GETFL);
  // An O_PATH descriptor needs no right to read the file.
  if (flags < 0 || flags & O_PATH || (flags & O_ACCMODE) != O_RDONLY) return -EBADF;
  uint64_t mount;
  if (!backing->has_library || !find_mount_of(file, &mount) || mount != backing->library) return -EXDEV;
  struct stat status;
  if (fstat(file, &status) != 0) return -errno;
  if (!S_ISREG(status.st_mode)) return -EINVAL;
  if (backing->settings->uid != 0 && status.st_uid != backing->settings->uid) return -EACCES;
  return backing->count < BACKING_LIMIT ? 0 : -ENFILE;
}

static int32_t open_id(struct backing *backing, int file) {
  const int refusal = check(backing, file);
  if (refusal != 0) return refusal;
  struct backing_map map = {.file = file};
  const int id = ioctl(backing->device, BACKING_OPEN, &map);
  if (id <= 0) return id == 0 ? -EIO : -errno;
  backing->ids[backing->count++] = id;
  return id;
}

static void close_id(struct backing *backing, int32_t id) {
  for (int i = 0; i < backing->count; i++) {
    if (backing->ids[i] != id) continue;
    uint32_t number = (uint32_t)id;
    ioctl(backing->device, BACKING_CLOSE, &number);  // fails when the mount is gone, and every id with it
    backing->ids[i] = backing->ids[--backing->count];
    return;
  }
}

// A message that is none of the protocol's ends the connection; the server then reads the files itself.
static void serve(struct backing *backing) {
  static struct message message;
  while (link_receive(backing->socket, &message) == 1) {
    int sent = -1;
    if (message.length == 0 && message.type == MESSAGE_REGISTER && message.descriptor >= 0) {
      const int32_t result = open_id(backing, message.descriptor);
      sent = link_send(backing->socket, MESSAGE_REGISTERED, message.value, &result, sizeof result, -1);
    } else if (message.length == 0 && message.type == MESSAGE_UNREGISTER && message.descriptor < 0) {
      close_id(backing, (int32_t)message.value);
      sent = 0;
    }
    if (message.descriptor >= 0) close(message.descriptor);  // this thread may wait
    if (sent != 0) return;
  }
}

static void *run(void *argument) {
  struct backing *const backing = argument;
  const int kept[] = {backing->socket, backing->ended, backing->device};
  if (own_descriptors(kept, sizeof kept / sizeof *kept) == 0 && take_rights(backing->settings)) serve(backing);
  empty_socket(backing->socket);
  const uint64_t one = 1;
  ssize_t written = write(backing->ended, &one, sizeof one);
  (void)written;  // an eventfd takes it
  return NULL;
}

static int compare(const void *left, const void *right) {
  const int32_t a = *(const int32_t *)left, b = *(const int32_t *)right;
  return a < b ? -1 : a > b;
}

// A server that was killed between getting an id and noting the handle leaves an id without a handle; so does a handle
// that was closed while the helper refused requests. The server may have written anything: it only keeps ids.
static void close_unused(struct backing *backing, int session) {
  struct handle {
    uint64_t unique, inode;
    int32_t backing, rest[3];
  };
  static struct handle handles[2048];
  static bool used[BACKING_LIMIT];
  _Static_assert(sizeof *handles == SESSION_HANDLE_SIZE, "PROTOCOL.md, \"The session memory\"");
  if (backing->count == 0) return;
  memset(used, 0, sizeof used);
  qsort(backing->ids, (size_t)backing->count, sizeof *backing->ids, compare);
  uint32_t mark = 0;
  if (pread(session, &mark, sizeof mark, SESSION_HANDLE_MARK) != sizeof mark || mark > SESSION_HANDLE_COUNT)
    mark = SESSION_HANDLE_COUNT;
  for (uint32_t first = 0; first < mark; first += sizeof handles / sizeof *handles) {
    const ssize_t size =
        pread(session, handles, sizeof handles, SESSION_HANDLES + (off_t)first * SESSION_HANDLE_SIZE);
    for (ssize_t i = 0; i < size / SESSION_HANDLE_SIZE && first + i < mark; i++) {
      if (handles[i].unique == 0) continue;
      const int32_t *const id =
          bsearch(&handles[i].backing, backing->ids, (size_t)backing->count, sizeof *id, compare);
      if (id) used[id - backing->ids] = true;
    }
  }
  int32_t unused[BACKING_LIMIT];
  int count = 0;
  for (int i = 0; i < backing->count; i++)
    if (!used[i]) unused[count++] = backing->ids[i];
  for (int i = 0; i < count; i++) close_id(backing, unused[i]);
}

void adopt_ids(struct backing *backing, int session) {
  static struct {
    uint64_t unique, inode;
    int32_t backing, rest[3];
  } handles[2048];
  _Static_assert(sizeof *handles == SESSION_HANDLE_SIZE, "PROTOCOL.md, \"The session memory\"");
  int32_t *const ids = backing->ids;
  ssize_t size;
  for (off_t at = 0; at < SESSION_HANDLE_COUNT * (off_t)SESSION_HANDLE_SIZE; at += sizeof handles) {
    if ((size = pread(session, handles, sizeof handles, SESSION_HANDLES + at)) <= 0) return;
    for (ssize_t i = 0; i < size / SESSION_HANDLE_SIZE; i++) {
      const int32_t id = handles[i].backing;
      if (handles[i].unique == 0 || id <= 0 || backing->count == BACKING_LIMIT ||
          bsearch(&id, ids, (size_t)backing->count, sizeof id, compare))
        continue;
      int place = backing->count++;
      for (; place > 0 && ids[place - 1] > id; place--) ids[place] = ids[place - 1];
      ids[place] = id;
    }
  }
}

int start_backing(struct backing *backing, int device, int session, int library) {
  end_backing(backing);
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0) {
    complain("cannot create a socket pair: %s", strerror(errno));
    return -1;
  }
  if (backing->is_stuck) {
    close(ends[0]);  // the server finds the connection closed, and reads the files itself
    return ends[1];
  }
  close_unused(backing, session);
  backing->device = device;
  backing->socket = ends[0];
  backing->has_library = library >= 0 && is_folder(library) && find_mount_of(library, &backing->library);
  backing->ended = eventfd(0, EFD_CLOEXEC);
  const int error = backing->ended < 0 ? errno : pthread_create(&backing->thread, NULL, run, backing);
  if (error == 0) return ends[1];
  complain("cannot start a thread: %s", strerror(error));
  close(ends[0]);
  close(ends[1]);
  if (backing->ended >= 0) close(backing->ended);
  backing->socket = -1;
  return -1;
}

void end_backing(struct backing *backing) {
  if (backing->socket < 0 || backing->is_stuck) return;
  shutdown(backing->socket, SHUT_RDWR);
  struct pollfd ended = {.fd = backing->ended, .events = POLLIN};
  if (poll(&ended, 1, PATIENCE) <= 0) {
    complain("the kernel holds a complete file that the server sent: the server reads such files itself from now on");
    backing->is_stuck = true;
    return;
  }
  pthread_join(backing->thread, NULL);
  close(backing->socket);
  close(backing->ended);
  backing->socket = -1;
}
