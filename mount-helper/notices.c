#include "notices.h"

#include <errno.h>
#include <linux/fuse.h>
#include <poll.h>
#include <stdint.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "complain.h"
#include "session.h"

// How long the helper waits for the thread before it answers the next requests, in milliseconds.
enum { PATIENCE = 50 };

static void *pass_on(void *argument) {
  const struct notices *const notices = argument;
  char packet[SESSION_BUFFER_SIZE];
  for (;;) {
    const ssize_t count = recv(notices->from_servers, packet, sizeof packet, MSG_TRUNC);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) break;
    if (count > (ssize_t)sizeof packet || count < (ssize_t)sizeof(struct fuse_out_header)) continue;
    // ENOENT: the kernel does not know the name or the inode. ENODEV, EPERM: the mount is gone.
    if (write(notices->device, packet, count) < 0 && errno != ENOENT && errno != ENODEV && errno != EPERM)
      complain("the kernel did not forget a name or a file's pages: %s", strerror(errno));
  }
  const uint64_t one = 1;
  ssize_t written = write(notices->ended, &one, sizeof one);
  (void)written;  // an eventfd takes it
  return NULL;
}

int start_notices(struct notices *notices, int device) {
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

void end_notices(struct notices *notices, int session) {
  if (notices->from_servers < 0) return;
  shutdown(notices->from_servers, SHUT_RDWR);
  struct pollfd ended = {.fd = notices->ended, .events = POLLIN};
  if (poll(&ended, 1, PATIENCE) <= 0) refuse_taken(session, notices->device);
  while (poll(&ended, 1, PATIENCE) <= 0) refuse_unread(notices->device);
  pthread_join(notices->thread, NULL);
  close(notices->from_servers);
  close(notices->for_servers);
  close(notices->ended);
  notices->from_servers = -1;
}
