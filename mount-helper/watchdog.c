#include "watchdog.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "clock.h"
#include "complain.h"

// A look each tenth of the limit, within these bounds, in milliseconds.
enum { LEAST_BETWEEN = 20, MOST_BETWEEN = 1000 };
// After each replacement the limit is twice as long, at most so often, until servers went well for CALM milliseconds.
enum { MOST_DOUBLINGS = 6, CALM = 300000 };

// What the threads of a process say together. If one waits for the disk, others may wait for its lock.
enum threads { RUNNING, AT_THE_DISK, HELD, UNSEEN };

static int between(const struct watchdog *watchdog) {
  const int tenth = watchdog->limit / 10;
  return tenth < LEAST_BETWEEN ? LEAST_BETWEEN : tenth > MOST_BETWEEN ? MOST_BETWEEN : tenth;
}

static int64_t present_limit(const struct watchdog *watchdog) {
  if (watchdog->is_trial) return watchdog->limit;
  return (int64_t)watchdog->limit << (watchdog->replaced < MOST_DOUBLINGS ? watchdog->replaced : MOST_DOUBLINGS);
}

void forget_hangs(struct watchdog *watchdog) { watchdog->replaced = 0; }

void begin_watch(struct watchdog *watchdog, bool is_trial) {
  memset(watchdog->threads, 0, sizeof watchdog->threads);
  watchdog->disk_looks = 0;
  watchdog->told = false;
  watchdog->is_trial = is_trial;
  watchdog->look_at = milliseconds() + between(watchdog);
}

int until_look(const struct watchdog *watchdog) {
  if (watchdog->limit == 0) return -1;
  const int64_t left = watchdog->look_at - milliseconds();
  return left > 0 ? (int)left : 0;
}

static enum threads look_at_thread(int tasks, const char *name) {
  char path[280], text[2048];
  snprintf(path, sizeof path, "%s/status", name);
  const int file = openat(tasks, path, O_RDONLY | O_CLOEXEC);
  if (file < 0) return errno == ENOENT ? RUNNING : UNSEEN;
  const ssize_t count = read(file, text, sizeof text - 1);
  close(file);
  if (count < 0) return errno == ESRCH ? RUNNING : UNSEEN;
  text[count] = 0;
  const char *state = strstr(text, "\nState:\t"), *tracer = strstr(text, "\nTracerPid:\t");
  if (!state || !tracer) return UNSEEN;
  const char letter = state[strlen("\nState:\t")];
  if (letter == 'T' || letter == 't' || atoi(tracer + strlen("\nTracerPid:\t")) != 0) return HELD;
  return letter == 'D' ? AT_THE_DISK : RUNNING;
}

// A thread that goes from one thing to the next may well wait for the disk in between: it holds nobody up.
static bool goes_on(const struct watchdog *watchdog, const char *name) {
  const uint32_t id = (uint32_t)strtoul(name, NULL, 10);
  bool is_known = false;
  for (int i = 0; i < WORK_THREADS; i++) {
    if (watchdog->threads[i].id != id) continue;
    if (watchdog->threads[i].looks > 1) return false;
    is_known = true;
  }
  return is_known;
}

static enum threads look_at_threads(const struct watchdog *watchdog, pid_t server) {
  char path[64];
  snprintf(path, sizeof path, "/proc/%d/task", server);
  DIR *tasks = opendir(path);
  if (!tasks) return UNSEEN;
  enum threads all = RUNNING;
  for (const struct dirent *entry; (entry = readdir(tasks));) {
    if (entry->d_name[0] == '.') continue;
    const enum threads one = look_at_thread(dirfd(tasks), entry->d_name);
    if (one > all && !(one == AT_THE_DISK && goes_on(watchdog, entry->d_name))) all = one;
  }
  closedir(tasks);
  return all;
}

// Notes what the threads are busy with, and returns which one is longest busy with the same thing, or -1.
static int note_work(struct watchdog *watchdog, bool started, struct work *longest) {
  int found = -1;
  for (int i = 0; i <= WORK_THREADS; i++) {
    struct work work = {.thread = "main", .text = "its start"};
    const bool is_busy = i == WORK_THREADS ? !started : started && read_work(watchdog->session, i, &work);
    int *const looks = &watchdog->threads[i].looks;
    *looks = !is_busy ? 0 : *looks > 0 && watchdog->threads[i].turn == work.turn ? *looks + 1 : 1;
    watchdog->threads[i].turn = work.turn;
    watchdog->threads[i].id = work.id;
    if (!is_busy || (found >= 0 && *looks <= watchdog->threads[found].looks)) continue;
    found = i;
    *longest = work;
  }
  return found;
}

static void tell_once(struct watchdog *watchdog, const struct work *work, enum threads threads, int64_t limit) {
  if (watchdog->told || (threads == AT_THE_DISK && (int64_t)watchdog->disk_looks * between(watchdog) < limit)) return;
  watchdog->told = true;
  if (threads == AT_THE_DISK) {
    complain("the disk does not answer: the server has waited for it for %g s; its thread %s (%u) is busy with %s",
             (double)limit / 1000, work->thread, work->id, work->text);
  } else {
    complain("cannot look at the server's threads in /proc: a server that hangs is not replaced");
  }
}

bool server_hangs(struct watchdog *watchdog, pid_t server, bool started) {
  if (watchdog->limit == 0 || milliseconds() < watchdog->look_at) return false;
  // Time is counted in looks: a helper that was stopped for an hour saw nothing of that hour.
  watchdog->look_at = milliseconds() + between(watchdog);
  struct work work;
  const int found = note_work(watchdog, started, &work);
  if (found < 0 || watchdog->threads[found].looks < 2) {
    watchdog->disk_looks = 0;
    return false;
  }
  const int64_t now = milliseconds();
  if (watchdog->replaced > 0 && now - watchdog->replaced_at > present_limit(watchdog) + CALM) watchdog->replaced = 0;
  const int64_t limit = present_limit(watchdog);
  const enum threads threads = look_at_threads(watchdog, server);
  watchdog->disk_looks = threads == AT_THE_DISK ? watchdog->disk_looks + 1 : 0;
  if (threads != RUNNING) {
    for (int i = 0; i <= WORK_THREADS; i++)
      if (watchdog->threads[i].looks > 0) watchdog->threads[i].looks = 1;  // the time starts anew
    if (threads != HELD) tell_once(watchdog, &work, threads, limit);
    return false;
  }
  if ((int64_t)watchdog->threads[found].looks * between(watchdog) < limit) return false;
  watchdog->replaced++;
  watchdog->replaced_at = now;
  complain("the server hangs: its thread %s (%u) has been busy with %s for %g s, and no thread waits for the disk. The "
           "next server replaces it, and may hang for %g s",
           work.thread, work.id, work.text, (double)limit / 1000, (double)present_limit(watchdog) / 1000);
  return true;
}
