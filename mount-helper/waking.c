#include "waking.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "complain.h"
#include "descriptors.h"
#include "link.h"
#include "waker.h"

// How long a waker may live, how long a killed one may take to end, and the thread, and how long after the last orders
// the filesystem is read-only again, in milliseconds. Before a waker does anything, the kernel drops the names that it
// knows, which takes a second for a million of them, and more beside busy programs.
enum { LIFE = 5000, PATIENCE_AFTER_KILL = 100, PATIENCE = LIFE + 1000, PAUSE = 100, LONGEST_PAUSE = 30000 };

// Waits for the end of a waker, or of the connection, if `socket` is one. Returns whether the waker has ended.
static bool await(pid_t waker, int socket, int patience, int *status) {
  struct pollfd events[2] = {{.fd = (int)syscall(SYS_pidfd_open, waker, 0), .events = POLLIN},
                             {.fd = socket, .events = POLLRDHUP}};
  poll(events, 2, patience);
  if (events[0].fd >= 0) close(events[0].fd);
  return waitpid(waker, status, WNOHANG) != 0;
}

// Starts a waker, or, without orders, a process that undoes what a waker did to the filesystem. Returns 0 or an errno.
static int start(struct waking *waking, const struct message *message) {
  int status = 0;
  if (waking->left > 0 && !await(waking->left, -1, PATIENCE_AFTER_KILL, &status)) return EBUSY;
  waking->left = 0;
  const pid_t child = fork();
  if (child < 0) return errno;
  if (child == 0) {
    close(waking->socket);
    if (!message) become_restorer(&waking->mount);
    become_waker(waking->settings, &waking->mount, (const char *)message->payload, message->length);
  }
  if (await(child, message ? waking->socket : -1, LIFE, &status))
    return WIFEXITED(status) ? WEXITSTATUS(status) : ETIMEDOUT;
  kill(child, SIGKILL);
  if (!await(child, -1, PATIENCE_AFTER_KILL, &status)) waking->left = child;
  return ETIMEDOUT;
}

// Makes the filesystem read-only again after wakers. It cannot be while one that was killed waits for the server. Where
// the kernel refuses it for another reason, there is nothing to try again: the mount is read-only all the same.
static void restore(struct waking *waking) {
  if (!waking->is_writable) return;
  waking->is_writable = start(waking, NULL) == EBUSY;
}

// Returns 0, or why programs were not told: an errno. A waker whose request the server has taken and does not answer
// cannot be killed: it ends with that answer, or with the connection.
static int wake(struct waking *waking, const struct message *message) {
  waking->is_writable = geteuid() == 0;  // an ordinary user's mount is writable for as long as it lasts
  return start(waking, message);
}

// Waits for a message, or the end of the connection, if the filesystem is writable. Until then it makes it read-only
// again: not between orders that follow each other, because the kernel drops the names that it knows each time.
static void await_message(struct waking *waking) {
  struct pollfd message = {.fd = waking->socket, .events = POLLIN};
  for (int pause = PAUSE; waking->is_writable && poll(&message, 1, pause) == 0;) {
    restore(waking);
    // Each try has the kernel drop names that it knows.
    pause = pause < LONGEST_PAUSE / 2 ? pause * 2 : LONGEST_PAUSE;
  }
}

// A message that is none of the protocol's ends the connection.
static void serve(struct waking *waking) {
  static struct message message;
  while (await_message(waking), link_receive(waking->socket, &message) == 1) {
    const bool is_order = message.type == MESSAGE_WAKE && message.descriptor < 0;
    if (message.descriptor >= 0) close(message.descriptor);  // this thread may wait
    if (!is_order) return;
    const uint32_t result = (uint32_t)wake(waking, &message);
    if (link_send(waking->socket, MESSAGE_WOKEN, message.value, &result, sizeof result, -1) != 0) return;
  }
}

static void *run(void *argument) {
  struct waking *const waking = argument;
  const int kept[] = {waking->socket, waking->ended};
  if (own_descriptors(kept, sizeof kept / sizeof *kept) == 0) serve(waking);
  restore(waking);
  empty_socket(waking->socket);
  const uint64_t one = 1;
  ssize_t written = write(waking->ended, &one, sizeof one);
  (void)written;  // an eventfd takes it
  return NULL;
}

void adopt_filesystem(struct waking *waking) { waking->is_writable = geteuid() == 0; }

int start_waking(struct waking *waking, const struct mount *mount) {
  end_waking(waking);
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0) {
    complain("cannot create a socket pair: %s", strerror(errno));
    return -1;
  }
  if (waking->is_stuck) {
    close(ends[0]);  // the server finds the connection closed
    return ends[1];
  }
  waking->mount = *mount;
  waking->socket = ends[0];
  waking->ended = eventfd(0, EFD_CLOEXEC);
  const int error = waking->ended < 0 ? errno : pthread_create(&waking->thread, NULL, run, waking);
  if (error == 0) return ends[1];
  complain("cannot start a thread: %s", strerror(error));
  close(ends[0]);
  close(ends[1]);
  if (waking->ended >= 0) close(waking->ended);
  waking->socket = -1;
  return -1;
}

void end_waking(struct waking *waking) {
  if (waking->socket < 0 || waking->is_stuck) return;
  shutdown(waking->socket, SHUT_RDWR);
  struct pollfd ended = {.fd = waking->ended, .events = POLLIN};
  if (poll(&ended, 1, PATIENCE) <= 0) {
    complain("another program holds what the server sent: programs that watch the mount are told nothing from now on");
    waking->is_stuck = true;
    return;
  }
  pthread_join(waking->thread, NULL);
  close(waking->socket);
  close(waking->ended);
  waking->socket = -1;
}
