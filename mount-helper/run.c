#include "run.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/close_range.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { FIRST = STDERR_FILENO + 1, ASIDE = 10 };  // where no number is that dup2 replaces

void run_mediafs(const struct settings *settings, int program, char *const *words, const int *passed, int count,
                 char *text, size_t space) {
  const int null = open("/dev/null", O_RDWR | O_CLOEXEC);
  program = fcntl(program, F_DUPFD_CLOEXEC, ASIDE);
  int kept[MOST_PASSED];
  int failed = null < 0 || program < 0 || dup2(null, STDIN_FILENO) < 0;
  for (int i = 0; i < count && !failed; i++) failed = (kept[i] = fcntl(passed[i], F_DUPFD_CLOEXEC, ASIDE)) < 0;
  for (int i = 0; i < count && !failed; i++) failed = dup2(kept[i], FIRST + i) < 0;
  if (failed || close_range((unsigned)(FIRST + count), ~0U, CLOSE_RANGE_CLOEXEC) != 0) {
    snprintf(text, space, "cannot prepare the descriptors of %s: %s", words[1], strerror(errno));
    return;
  }
  fexecve(program, words, environ);
  // ENOENT: an interpreter runs it, which needs a path.
  if (errno == ENOENT) execv(settings->server, words);
  snprintf(text, space, "cannot run %s: %s", settings->server, strerror(errno));
}
