#include "reception.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "complain.h"
#include "descriptors.h"
#include "kinds.h"
#include "link.h"

struct reception {
  int link;
  int out;
  bool for_user;
};

// Whether a process may close the descriptor, and leave it to a child, without asking anybody but the kernel.
static bool is_harmless(int descriptor, bool for_user) {
  const int flags = fcntl(descriptor, F_GETFL);
  if (flags < 0) return false;
  return flags & O_PATH || is_folder(descriptor) || (is_regular(descriptor) && (!for_user || is_on_disk(descriptor)));
}

// Passes one message on. Returns what link_receive() does.
static int pass_one(const struct reception *reception) {
  struct message message;
  const int result = link_receive(reception->link, &message);
  if (result != 1) return result;
  const int descriptor = message.descriptor;
  if (message.type == MESSAGE_LOG) message.value = descriptor >= 0 && is_device(descriptor);
  if (message.type == MESSAGE_BROKEN) message.value = EPROTO;
  const bool is_passed = descriptor < 0 || is_harmless(descriptor, reception->for_user);
  const int sent = link_send(reception->out, message.type, message.value, message.payload, message.length,
                             is_passed ? descriptor : -1);
  if (descriptor >= 0) close(descriptor);  // this thread may wait
  return sent == 0 ? 1 : 0;
}

static void *run(void *argument) {
  const struct reception reception = *(struct reception *)argument;
  free(argument);
  const int kept[] = {reception.link, reception.out};
  const int error = own_descriptors(kept, sizeof kept / sizeof *kept) == 0 ? 0 : errno;
  send(reception.out, &error, sizeof error, MSG_NOSIGNAL);
  if (error != 0) return NULL;
  struct pollfd message = {.fd = reception.link, .events = POLLIN};
  int result;
  do {
    poll(&message, 1, -1);
    result = pass_one(&reception);
  } while (result == 1 || (result < 0 && errno == EAGAIN));
  if (result < 0 && errno != ECONNRESET) {
    link_send(reception.out, MESSAGE_BROKEN, (uint32_t)errno, NULL, 0, -1);
  }
  empty_socket(reception.link);
  return NULL;  // and the kernel closes this thread's descriptors
}

static int start_thread(int link, int out, bool for_user) {
  struct reception *const reception = malloc(sizeof *reception);
  if (!reception) return ENOMEM;
  *reception = (struct reception){.link = link, .out = out, .for_user = for_user};
  pthread_t thread;
  const int error = pthread_create(&thread, NULL, run, reception);
  if (error == 0) {
    pthread_detach(thread);
  } else {
    free(reception);
  }
  return error;
}

int start_reception(int link, bool for_user) {
  int ends[2] = {-1, -1};
  int error = socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) == 0 ? 0 : errno;
  if (error == 0) error = start_thread(link, ends[1], for_user);
  // From its first packet on the thread has descriptors of its own.
  if (error == 0 && recv(ends[0], &error, sizeof error, 0) != sizeof error) error = EPIPE;
  if (ends[1] >= 0) close(ends[1]);
  if (error == 0 && fcntl(ends[0], F_SETFL, O_NONBLOCK) == 0) return ends[0];
  complain("cannot receive messages of a server: %s", strerror(error));
  if (ends[0] >= 0) close(ends[0]);
  return -1;
}
