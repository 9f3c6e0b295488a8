#include "upgrade.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "complain.h"

enum { REFUSED = 1 };

// The payload of UPGRADE: the file that the caller of `mediafs upgrade` runs.
struct asked {
  uint64_t device, inode;
};

// O_PATH: users may run an installed program, and not read it. The descriptor is none of those that a server gets.
static int open_program(const char *path) {
  const int found = open(path, O_PATH | O_CLOEXEC);
  if (found < 0) return -1;
  const int moved = fcntl(found, F_DUPFD_CLOEXEC, 10);
  const int error = errno;
  close(found);
  errno = error;
  return moved;
}

int hold_program(struct upgrade *upgrade, const struct settings *settings) {
  *upgrade = (struct upgrade){.program = open_program(settings->server), .next = -1};
  if (upgrade->program >= 0) return 0;
  complain("cannot run %s: %s", settings->server, strerror(errno));
  return -1;
}

__attribute__((format(printf, 2, 3))) static void refuse_upgrade(int link, const char *format, ...) {
  char text[UPGRADE_TEXT];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  // If it fails, the server has ended, or reads nothing.
  link_send(link, MESSAGE_VERDICT, REFUSED, text, strlen(text), -1);
}

bool agree_to_upgrade(struct upgrade *upgrade, const struct settings *settings, int link,
                      const struct message *message) {
  struct asked asked;
  struct stat status;
  memcpy(&asked, message->payload, sizeof asked);
  const int next = open_program(settings->server);
  if (next < 0 || fstat(next, &status) != 0) {
    refuse_upgrade(link, "cannot open %s, the program of this mount: %s", settings->server, strerror(errno));
  } else if (!S_ISREG(status.st_mode) || (status.st_mode & 0111) == 0) {
    refuse_upgrade(link, "%s, the program of this mount, is no program that can be run", settings->server);
  } else if (status.st_dev != asked.device || status.st_ino != asked.inode) {
    refuse_upgrade(link, "the program of this mount is %s: install the new one there, and run its upgrade",
                   settings->server);
  } else if (link_send(link, MESSAGE_VERDICT, 0, NULL, 0, -1) == 0) {
    upgrade->next = next;
    upgrade->tried = false;
    upgrade->why[0] = 0;
    return true;
  }
  if (next >= 0) close(next);
  return false;
}

void keep_words(struct upgrade *upgrade, const struct message *message) {
  const size_t length = message->length < sizeof upgrade->said - 1 ? message->length : sizeof upgrade->said - 1;
  memcpy(upgrade->said, message->payload, length);
  upgrade->said[length] = 0;
  // The server may be hostile, and the text goes to the log and to process lists.
  for (size_t i = 0; i < length; i++)
    if ((unsigned char)upgrade->said[i] < ' ' || upgrade->said[i] == 0x7F) upgrade->said[i] = '?';
}

void keep_version(struct upgrade *upgrade, uint32_t version) {
  if (is_trying(upgrade))
    snprintf(upgrade->said, sizeof upgrade->said,
             "the new server speaks version %u of the mount helper's protocol, and the helper of this mount version "
             "%d: that takes an unmount",
             version, PROTOCOL_VERSION);
}

int program_to_start(struct upgrade *upgrade, int session) {
  upgrade->said[0] = 0;
  if (upgrade->next < 0) return upgrade->program;
  if (!upgrade->tried) take_suspects(session, &upgrade->suspects);
  upgrade->tried = true;
  return upgrade->next;
}

bool is_trying(const struct upgrade *upgrade) { return upgrade->next >= 0 && upgrade->tried; }

void complete_upgrade(struct upgrade *upgrade) {
  close(upgrade->program);
  upgrade->program = upgrade->next;
  upgrade->next = -1;
}

bool follow_upgrade(struct upgrade *upgrade, const struct settings *settings, int session, int status, const char *how,
                    int64_t lived) {
  if (upgrade->next < 0) return false;
  if (!upgrade->tried) {
    if (WIFEXITED(status) && WEXITSTATUS(status) == STATUS_HANDED_OVER)
      complain("the server of %s has ended for an upgrade; readers wait for the new one", settings->mountpoint);
    else
      complain("the server %s before it had ended for an upgrade; readers of %s wait for the new one", how,
               settings->mountpoint);
    return true;
  }
  close(upgrade->next);
  upgrade->next = -1;
  return_suspects(session, &upgrade->suspects);
  char *why = upgrade->why;
  const bool is_late = WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL && lived >= UPGRADE_PATIENCE;
  if (upgrade->said[0]) {
    snprintf(why, sizeof upgrade->why, "%s", upgrade->said);
  } else if (is_late) {
    snprintf(why, sizeof upgrade->why, "the new server was not ready within %d s", UPGRADE_PATIENCE / 1000);
  } else {
    snprintf(why, sizeof upgrade->why, "the new server %s", how);
  }
  if (upgrade->said[0] || is_late) complain("the new server %s", how);
  complain("the upgrade of %s failed: %s. The old program goes on", settings->mountpoint, why);
  return true;
}
