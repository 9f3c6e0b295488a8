#include "relay.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "complain.h"

enum { PATIENCE = 2 };  // in seconds

static int entrance = -1;  // of the pipe, for the processes of the user; -1 without one
static pthread_t copier;

static void *copy(void *argument) {
  // A shell's job in the background is stopped by what it writes to a terminal (stty tostop), unless it blocks this.
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGTTOU);
  pthread_sigmask(SIG_BLOCK, &set, NULL);
  const int from = (int)(intptr_t)argument;
  unsigned char text[4096], last = 0;
  ssize_t count;
  while ((count = read(from, text, sizeof text)) > 0) {
    for (ssize_t i = 0; i < count; i++) {
      const unsigned char byte = text[i];
      // U+0080 to U+009F are control characters, too: in UTF-8, the second byte after 0xC2.
      const bool is_late = last == 0xC2 && byte >= 0x80 && byte < 0xA0;
      if (is_late || byte == 0x7F || (byte < ' ' && byte != '\n')) text[i] = '?';
      last = byte;
    }
    const ssize_t result = write(STDERR_FILENO, text, (size_t)count);
    (void)result;  // a terminal that is gone holds no server up
  }
  close(from);
  return NULL;
}

int start_relay(void) {
  if (!isatty(STDOUT_FILENO) && !isatty(STDERR_FILENO)) return 0;
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0 || fcntl(ends[1], F_SETFL, O_NONBLOCK) != 0) {
    complain("cannot create a pipe: %s", strerror(errno));
    return -1;
  }
  const int error = pthread_create(&copier, NULL, copy, (void *)(intptr_t)ends[0]);
  if (error == 0) {
    entrance = ends[1];
    return 0;
  }
  complain("cannot start a thread: %s", strerror(error));
  close(ends[0]);
  close(ends[1]);
  return -1;
}

void use_relay(void) {
  if (entrance < 0) return;
  if (dup2(entrance, STDOUT_FILENO) < 0 || dup2(entrance, STDERR_FILENO) < 0) _exit(1);
}

void end_relay(void) {
  if (entrance < 0) return;
  close(entrance);
  entrance = -1;
  struct timespec until;
  clock_gettime(CLOCK_MONOTONIC, &until);
  until.tv_sec += PATIENCE;
  if (pthread_clockjoin_np(copier, NULL, CLOCK_MONOTONIC, &until) != 0) pthread_detach(copier);
}
