#include "notices.h"

#include <errno.h>
#include <linux/fuse.h>
#include <poll.h>
#include <stdint.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "complain.h"
#include "descriptors.h"
#include "session.h"

// How long the helper waits for the thread before it answers the next requests, in milliseconds, and how often before
// it aborts the connection, and before it leaves the thread alone.
enum { PATIENCE = 50, MOST_WAITS = 20, LAST_WAIT = 100 };

// The server sends what it likes: one message a minute, so that it does not fill a log that it chose.
static void complain_rarely(int error) {
  static time_t last;
  struct timespec now;
  clock_gettime(CLOCK_BOOTTIME, &now);
  if (last != 0 && now.tv_sec - last < 60) return;
  last = now.tv_sec;
  complain("the kernel did not forget a name or a file's pages: %s", strerror(error));
}

// Whether no packet comes any more: recv(2) gives 0 for an empty packet, too.
static bool is_shut(int socket) {
  struct pollfd end = {.fd = socket, .events = POLLRDHUP};
  return poll(&end, 1, 0) > 0 && (end.revents & (POLLHUP | POLLRDHUP));
}

static void *pass_on(void *argument) {
  const struct notices *const notices = argument;
  char packet[SESSION_BUFFER_SIZE];
  for (;;) {
    const ssize_t count = recv(notices->from_servers, packet, sizeof packet, MSG_TRUNC);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0 || (count == 0 && is_shut(notices->from_servers))) break;
    if (count > (ssize_t)sizeof packet || count < (ssize_t)sizeof(struct fuse_out_header)) continue;
    struct fuse_out_header header;
    memcpy(&header, packet, sizeof header);
    if (header.unique != 0) continue;  // a reply, and no notification
    // ENOENT: the kernel does not know the name or the inode. ENODEV, EPERM: the mount is gone.
    if (write(notices->device, packet, count) < 0 && errno != ENOENT && errno != ENODEV && errno != EPERM)
      complain_rarely(errno);
  }
  empty_socket(notices->from_servers);
  const uint64_t one = 1;
  ssize_t written = write(notices->ended, &one, sizeof one);
  (void)written;  // an eventfd takes it
  return NULL;
}

static void close_notices(struct notices *notices) {
  pthread_join(notices->thread, NULL);
  close(notices->from_servers);
  close(notices->for_servers);
  close(notices->ended);
  notices->from_servers = -1;
}

int start_notices(struct notices *notices, int device) {
  if (notices->from_servers >= 0) {
    struct pollfd ended = {.fd = notices->ended, .events = POLLIN};
    if (poll(&ended, 1, is_shut(notices->from_servers) ? PATIENCE : 0) <= 0) return 0;
    close_notices(notices);
  }
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0) {
    complain("cannot create a socket pair: %s", strerror(errno));
    return -1;
  }
  *notices = (struct notices){
      .from_servers = ends[0], .for_servers = ends[1], .ended = eventfd(0, EFD_CLOEXEC), .device = device};
  int error = notices->ended < 0 ? errno : pthread_create(&notices->thread, NULL, pass_on, notices);
  if (error == 0) return 0;
  complain("cannot start a thread: %s", strerror(error));
  close(ends[0]);
  close(ends[1]);
  if (notices->ended >= 0) close(notices->ended);
  notices->from_servers = -1;
  return -1;
}

void hush_notices(struct notices *notices) {
  if (notices->from_servers < 0) return;
  shutdown(notices->from_servers, SHUT_RDWR);
  struct pollfd ended = {.fd = notices->ended, .events = POLLIN};
  if (poll(&ended, 1, PATIENCE * MOST_WAITS) > 0) close_notices(notices);
}

void end_notices(struct notices *notices, int session, const struct mount *mount) {
  if (notices->from_servers < 0) return;
  shutdown(notices->from_servers, SHUT_RDWR);
  struct pollfd ended = {.fd = notices->ended, .events = POLLIN};
  if (poll(&ended, 1, PATIENCE) <= 0) refuse_taken(session, notices->device);
  for (int waits = 1; poll(&ended, 1, PATIENCE) <= 0; waits++) {
    // The server may have taken a request without a note of it.
    if (waits == LAST_WAIT) return;
    if ((waits == MOST_WAITS || !refuse_unread(session, notices->device)) && is_connected(mount))
      abort_connection(mount);
  }
  close_notices(notices);
}
