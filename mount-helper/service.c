#include "service.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "clock.h"
#include "complain.h"

// What a server says may change as often as it likes: how often the manager is told at most, in milliseconds.
enum { PAUSE = 200 };

// The most descriptors that are taken over, and the first one (sd_listen_fds(3)).
enum { MOST_KEPT = 64, FIRST_KEPT = 3 };

static long long number(const char *text) {
  char *end;
  errno = 0;
  const long long value = text && *text ? strtoll(text, &end, 10) : -1;
  return errno == 0 && value >= 0 && *end == 0 ? value : -1;
}

// The manager gets /dev/fuse. So it must be this user's or root's, whatever the environment says.
static int connect_manager(const char *path) {
  struct sockaddr_un address = {.sun_family = AF_UNIX};
  struct stat status;
  const int place = open(path, O_PATH | O_CLOEXEC);
  if (place < 0 || fstat(place, &status) != 0) {
    complain("cannot reach the service manager at %s: %s", path, strerror(errno));
  } else if (path[0] != '/' || !S_ISSOCK(status.st_mode) || (status.st_uid != 0 && status.st_uid != geteuid())) {
    complain("NOTIFY_SOCKET=%s is no socket of root's or of this user's: nobody is told of the mount", path);
  } else {
    snprintf(address.sun_path, sizeof address.sun_path, "/proc/self/fd/%d", place);
    const struct timeval patience = {.tv_sec = 1};
    const int found = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (found >= 0 && setsockopt(found, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience) == 0 &&
        connect(found, (struct sockaddr *)&address, sizeof address) == 0) {
      close(place);
      return found;
    }
    complain("cannot reach the service manager at %s: %s", path, strerror(errno));
    if (found >= 0) close(found);
  }
  if (place >= 0) close(place);
  return -1;
}

void open_service(struct service *service, bool wanted) {
  *service = (struct service){.socket = -1, .is_status_told = true};
  const char *const path = getenv("NOTIFY_SOCKET");
  if (wanted && path && *path) service->socket = connect_manager(path);
  const long long period = number(getenv("WATCHDOG_USEC")), process = number(getenv("WATCHDOG_PID"));
  // Twice in each period, as sd_watchdog_enabled(3) recommends.
  if (service->socket >= 0 && period > 0 && (process < 0 || process == getpid())) {
    service->beat = period / 2000 > 1 << 30 ? 1 << 30 : (int)(period / 2000);
    if (service->beat == 0) service->beat = 1;
  }
  static const char *const names[] = {"NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID"};
  for (size_t i = 0; i < sizeof names / sizeof *names; i++) unsetenv(names[i]);
}

struct kept take_kept(bool wanted) {
  struct kept kept = {-1, -1, -1};
  const struct {
    const char *name;
    int *descriptor;
  } known[] = {{KEPT_DEVICE, &kept.device}, {KEPT_SESSION, &kept.session}, {KEPT_RECORD, &kept.record}};
  const char *name = getenv("LISTEN_FDNAMES");
  const bool is_ours = number(getenv("LISTEN_PID")) == getpid();
  const long long count = number(getenv("LISTEN_FDS"));
  for (int i = 0; wanted && is_ours && name && i < count && i < MOST_KEPT; i++) {
    const size_t length = strcspn(name, ":");
    for (size_t j = 0; j < sizeof known / sizeof *known; j++) {
      const bool is_it = strlen(known[j].name) == length && strncmp(name, known[j].name, length) == 0;
      if (is_it && *known[j].descriptor < 0 && fcntl(FIRST_KEPT + i, F_SETFD, FD_CLOEXEC) == 0)
        *known[j].descriptor = FIRST_KEPT + i;
    }
    name = name[length] ? name + length + 1 : NULL;
  }
  unsetenv("LISTEN_PID");
  unsetenv("LISTEN_FDS");
  unsetenv("LISTEN_FDNAMES");
  return kept;
}

static int tell(const struct service *service, const char *text, int descriptor) {
  union {
    struct cmsghdr header;
    char space[CMSG_SPACE(sizeof(int))];
  } control = {.space = {0}};
  struct iovec part = {(void *)text, strlen(text)};
  struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};
  if (descriptor >= 0) {
    message.msg_control = control.space;
    message.msg_controllen = sizeof control.space;
    struct cmsghdr *const header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof descriptor);
    memcpy(CMSG_DATA(header), &descriptor, sizeof descriptor);
  }
  ssize_t sent;
  do {
    sent = sendmsg(service->socket, &message, MSG_NOSIGNAL);
  } while (sent < 0 && errno == EINTR);
  return sent < 0 ? -1 : 0;
}

int store_descriptor(const struct service *service, const char *name, int descriptor) {
  char text[128];
  snprintf(text, sizeof text, "FDSTORE=1\nFDNAME=%s", name);
  return tell(service, text, descriptor);
}

void remove_descriptor(const struct service *service, const char *name) {
  char text[128];
  snprintf(text, sizeof text, "FDSTOREREMOVE=1\nFDNAME=%s", name);
  if (service->socket >= 0 && tell(service, text, -1) != 0)
    complain("cannot tell the service manager that the mount has ended: %s", strerror(errno));
}

void set_status(struct service *service, const char *text) {
  char next[SERVICE_STATUS];
  snprintf(next, sizeof next, "%s", text);
  // A line of its own would be an order to the manager.
  for (char *at = next; *at; at++)
    if ((unsigned char)*at < ' ' || *at == 0x7F) *at = ' ';
  if (strcmp(next, service->status) == 0) return;
  strcpy(service->status, next);
  service->is_status_told = false;
}

static bool has_news(const struct service *service) {
  return (service->ready && !service->told_ready) || service->reloading != service->told_reloading ||
         (service->stopping && !service->told_stopping) || !service->is_status_told;
}

int tend_service(struct service *service, bool now) {
  if (service->socket < 0) return -1;
  const int64_t time = milliseconds();
  const bool beats = service->beat > 0 && time >= service->beat_at;
  const bool tells = has_news(service) && (now || service->told_at == 0 || time >= service->told_at + PAUSE);
  if (beats || tells) {
    char text[SERVICE_STATUS + 256], state[64] = "";
    struct timespec clock;
    clock_gettime(CLOCK_MONOTONIC, &clock);
    if (!tells) {
    } else if (service->stopping) {
      snprintf(state, sizeof state, "STOPPING=1\n");
    } else if (service->reloading && !service->told_reloading) {
      const long long micro = clock.tv_sec * 1000000LL + clock.tv_nsec / 1000;
      snprintf(state, sizeof state, "RELOADING=1\nMONOTONIC_USEC=%lld\n", micro);
    } else if (service->ready && !service->reloading && (!service->told_ready || service->told_reloading)) {
      snprintf(state, sizeof state, "READY=1\n");
    }
    snprintf(text, sizeof text, "%s%s%s%s\n", state, beats ? "WATCHDOG=1\n" : "", tells ? "STATUS=" : "",
             tells ? service->status : "");
    if (tell(service, text, -1) == 0) {
      if (beats) service->beat_at = time + service->beat;
      if (tells) {
        service->told_ready |= service->ready && !service->reloading;
        service->told_reloading = service->reloading;
        service->told_stopping = service->stopping;
        service->is_status_told = true;
        service->told_at = time;
      }
    } else if (errno != EAGAIN) {
      complain("the service manager is gone (%s): nobody is told of the mount any more", strerror(errno));
      close(service->socket);
      service->socket = -1;
      return -1;
    }
  }
  int64_t next = has_news(service) ? service->told_at + PAUSE - time : INT32_MAX;
  if (service->beat > 0 && service->beat_at - time < next) next = service->beat_at - time;
  return next == INT32_MAX ? -1 : next > 0 ? (int)next : 0;
}
