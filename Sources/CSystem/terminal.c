// Gives the terminal back when the program dies while it draws on all of it. The handler only calls what a signal
// handler may call.
#define _GNU_SOURCE
#include <signal.h>
#include <string.h>
#include <termios.h>
#include <unistd.h>

#include "CSystem.h"

static char farewell[256];
static size_t length;
static struct termios modes;

static void restore(int number) {
  const ssize_t written = write(STDOUT_FILENO, farewell, length);
  (void)written;  // nobody is left to tell
  tcsetattr(STDIN_FILENO, TCSANOW, &modes);
  raise(number);  // SA_RESETHAND: now it ends the process
}

void csystem_guard_terminal(const char *bytes, size_t count) {
  static const int fatal[] = {SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGTRAP, SIGABRT, SIGSYS};
  length = count < sizeof farewell ? count : sizeof farewell;
  memcpy(farewell, bytes, length);
  struct sigaction action = {.sa_handler = restore, .sa_flags = SA_ONSTACK | SA_RESETHAND};
  for (size_t i = 0; i < sizeof fatal / sizeof *fatal; i++) sigaction(fatal[i], &action, NULL);
}

int csystem_note_terminal(void) { return tcgetattr(STDIN_FILENO, &modes); }
