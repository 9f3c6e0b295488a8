#include "descriptors.h"

#include <errno.h>
#include <linux/close_range.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

// More than the kernel queues: it limits their bytes (net.core.wmem_max), and counts some hundred for each packet.
enum { MOST_PACKETS = 1 << 24 };

static void close_from(unsigned from, const int *kept, size_t count) {
  for (;;) {
    unsigned next = ~0U;
    for (size_t i = 0; i < count; i++)
      if (kept[i] >= (int)from && (unsigned)kept[i] < next) next = (unsigned)kept[i];
    if (next > from) close_range(from, next == ~0U ? next : next - 1, 0);  // cannot fail with these arguments
    if (next == ~0U) return;
    from = next + 1;
  }
}

void close_all_but(const int *kept, size_t count) { close_from(STDERR_FILENO + 1, kept, count); }

int own_descriptors(const int *kept, size_t count) {
  if (close_range(~0U, ~0U, CLOSE_RANGE_UNSHARE) != 0) return -1;
  close_from(0, kept, count);  // also the caller's terminal, which the helper gives back
  return 0;
}

void empty_socket(int socket) {
  const int on = 1;
  shutdown(socket, SHUT_RDWR);
  // Each packet then has more than fits (MSG_CTRUNC), which tells an empty one from the end.
  setsockopt(socket, SOL_SOCKET, SO_PASSCRED, &on, sizeof on);
  for (int i = 0; i < MOST_PACKETS; i++) {
    char byte;
    struct iovec part = {&byte, sizeof byte};
    struct msghdr packet = {.msg_iov = &part, .msg_iovlen = 1};
    const ssize_t count = recvmsg(socket, &packet, MSG_DONTWAIT);
    if (count < 0 && (errno == ECONNRESET || errno == EINTR)) continue;  // before the packets, and once
    if (count < 0 || (count == 0 && !(packet.msg_flags & MSG_CTRUNC))) return;
  }
}
