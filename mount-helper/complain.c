#include "complain.h"

#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

// How long a process that ends waits for the thread, in milliseconds.
enum { PATIENCE = 2000 };

static int lines = -1;    // a pipe to the thread; -1 without one
static pid_t owner;       // the thread's process
static int written = -1;  // a pipe whose other end closes when the thread has ended

void complain(const char *format, ...) {
  char line[1024] = "mediafs: ";
  const size_t prefix = strlen(line);
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(line + prefix, sizeof line - prefix - 1, format, arguments);
  va_end(arguments);
  strcat(line, "\n");
  ssize_t count = write(lines >= 0 ? lines : STDERR_FILENO, line, strlen(line));
  (void)count;  // if stderr is closed, no reader is left to tell
}

static void *write_lines(void *argument) {
  const int *const ends = argument;
  static char text[4096];
  ssize_t count;
  while ((count = read(ends[0], text, sizeof text)) > 0) {
    ssize_t result = write(STDERR_FILENO, text, (size_t)count);
    (void)result;  // as above
  }
  close(ends[0]);
  close(ends[1]);
  return NULL;
}

void complain_on_a_thread(void) {
  static int ends[2];  // the thread's
  int in[2], out[2];
  pthread_t thread;
  if (lines >= 0 && owner == getpid()) return;
  lines = -1;  // the thread of the process that forked this one is not its own
  if (pipe2(in, O_CLOEXEC) != 0) return;
  if (pipe2(out, O_CLOEXEC) != 0) {
    close(in[0]);
    close(in[1]);
    return;
  }
  ends[0] = in[0];
  ends[1] = out[1];
  if (fcntl(in[1], F_SETFL, O_NONBLOCK) == 0 && pthread_create(&thread, NULL, write_lines, ends) == 0) {
    pthread_detach(thread);
    lines = in[1];
    owner = getpid();
    written = out[0];
    return;
  }
  for (int i = 0; i < 2; i++) {
    close(in[i]);
    close(out[i]);
  }
}

void complain_directly(void) {
  if (lines < 0) return;
  close(lines);
  lines = -1;
  struct pollfd end = {.fd = written, .events = POLLIN};
  poll(&end, 1, PATIENCE);
}
