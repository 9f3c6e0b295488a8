#include "link.h"

#include <errno.h>
#include <stdint.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

union control {
  char space[CMSG_SPACE(sizeof(int))];
  struct cmsghdr align;
};

int link_send(int link, uint32_t type, uint32_t value, const void *payload, size_t length, int descriptor) {
  uint32_t head[2] = {type, value};
  struct iovec parts[2] = {{head, sizeof head}, {(void *)payload, length}};
  struct msghdr packet = {.msg_iov = parts, .msg_iovlen = length > 0 ? 2 : 1};
  union control control;
  memset(&control, 0, sizeof control);
  if (descriptor >= 0) {
    packet.msg_control = control.space;
    packet.msg_controllen = sizeof control.space;
    struct cmsghdr *rights = CMSG_FIRSTHDR(&packet);
    rights->cmsg_level = SOL_SOCKET;
    rights->cmsg_type = SCM_RIGHTS;
    rights->cmsg_len = CMSG_LEN(sizeof descriptor);
    memcpy(CMSG_DATA(rights), &descriptor, sizeof descriptor);
  }
  ssize_t sent;
  do {
    sent = sendmsg(link, &packet, MSG_NOSIGNAL);
  } while (sent < 0 && errno == EINTR);
  return sent < 0 ? -1 : 0;
}

int link_receive(int link, struct message *message) {
  uint32_t head[2];
  struct iovec parts[2] = {{head, sizeof head}, {message->payload, sizeof message->payload}};
  union control control;
  struct msghdr packet = {
      .msg_iov = parts,
      .msg_iovlen = 2,
      .msg_control = control.space,
      .msg_controllen = CMSG_LEN(sizeof(int))};  // without the padding, which has room for a second descriptor
  message->descriptor = -1;
  int was_reset = 0;
  ssize_t count;
  do {
    count = recvmsg(link, &packet, MSG_CMSG_CLOEXEC);
    // Tells, once, that the server ended with messages unread. What it sent before comes next.
  } while (count < 0 && (errno == EINTR || (errno == ECONNRESET && !was_reset++)));
  if (count < 0) return -1;
  for (struct cmsghdr *part = CMSG_FIRSTHDR(&packet); part; part = CMSG_NXTHDR(&packet, part))
    if (part->cmsg_level == SOL_SOCKET && part->cmsg_type == SCM_RIGHTS)
      memcpy(&message->descriptor, CMSG_DATA(part), sizeof(int));
  if (count == 0 && message->descriptor < 0 && !(packet.msg_flags & MSG_CTRUNC)) return 0;
  if ((size_t)count < sizeof head || (packet.msg_flags & (MSG_TRUNC | MSG_CTRUNC))) {
    if (message->descriptor >= 0) close(message->descriptor);
    message->descriptor = -1;
    errno = EPROTO;
    return -1;
  }
  message->type = head[0];
  message->value = head[1];
  message->length = (size_t)count - sizeof head;
  return 1;
}
