#include "opening.h"

#include <signal.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "clock.h"
#include "complain.h"
#include "run.h"
#include "server.h"

// How long it may take to open the lists, in seconds: their disk may not answer. Then it ends by itself; a process that
// its user stopped does not, and the helper kills it when a server asks again.
enum { LIFE = 10, LONGEST = 2 * LIFE };

// A server that is not answered says so itself.
static void start(struct opening *opening, const struct settings *settings, int program, int link) {
  const pid_t helper = getpid(), child = fork();
  opening->is_due = false;
  if (child > 0) {
    opening->process = child;
    opening->kill_at = milliseconds() + 1000 * LONGEST;
  }
  if (child != 0) return;
  alarm(LIFE);
  begin_program(settings);
  // Also a process that its user stopped ends with the helper: while it has the helper's end of the link, the server
  // does not see that the helper was killed. A change of ids takes this back: the one above, and one of the program's
  // own (rights.c), after which it asks for the same.
  if (prctl(PR_SET_PDEATHSIG, SIGKILL) != 0 || getppid() != helper) _exit(1);
  char number[16], text[512];
  snprintf(number, sizeof number, "%u", opening->number);
  // It reads the options by itself: the server cannot change what it opens.
  const int passed[] = {link, settings->options_fd};
  char *const words[] = {"mediafs", "open-lists", "--helper-fd", "3", "--options-fd", "4", "--number", number, NULL};
  run_mediafs(settings, program, words, passed, sizeof passed / sizeof *passed, text, sizeof text);
  complain("%s", text);
  _exit(1);
}

void open_lists(struct opening *opening, const struct settings *settings, int program, int link, uint32_t number) {
  opening->number = number;
  opening->is_due = true;
  if (opening->process == 0) return start(opening, settings, program, link);
  if (milliseconds() >= opening->kill_at) kill(opening->process, SIGKILL);
}

void take_opener(struct opening *opening, const struct settings *settings, int program, int link) {
  if (opening->process == 0 || waitpid(opening->process, NULL, WNOHANG) != opening->process) return;
  opening->process = 0;
  if (opening->is_due) start(opening, settings, program, link);
}

void forget_asked(struct opening *opening) { opening->is_due = false; }

void end_opening(struct opening *opening) {
  // It may wait for a disk: nobody waits for it.
  if (opening->process > 0) kill(opening->process, SIGKILL);
}
