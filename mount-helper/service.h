// The service manager that started the helper: PROTOCOL.md, "Under a service manager".
#pragma once
#include <stdbool.h>
#include <stdint.h>

enum {
  STATUS_LEFT = 75,      // the helper's exit status when it leaves the mount with the manager (EX_TEMPFAIL)
  SERVICE_STATUS = 512,  // the longest status, with its end
};

struct service {
  int socket;      // -1 without a manager
  int beat;        // how often it wants a heartbeat, in milliseconds; 0: never
  int64_t beat_at;
  // How it is, and what of that the manager knows.
  bool ready, reloading, stopping;
  bool told_ready, told_reloading, told_stopping;
  char status[SERVICE_STATUS];
  bool is_status_told;
  int64_t told_at;
};

// Takes what the manager says out of the environment, which servers and other programs get: nobody but the helper
// speaks to it. Connects to it if `wanted`.
void open_service(struct service *service, bool wanted);

// The names in the manager's store.
#define KEPT_DEVICE "mediafs-device"
#define KEPT_SESSION "mediafs-session"
#define KEPT_RECORD "mediafs-mount"

// Descriptors that the manager kept; -1 for each one that it did not.
struct kept {
  int device, session, record;
};

// Takes them from the environment, and makes them close-on-exec. Call it before anything else opens a descriptor.
struct kept take_kept(bool wanted);

// Gives the manager a descriptor to keep under that name. Returns 0, or -1 with errno.
int store_descriptor(const struct service *service, const char *name, int descriptor);

// Has the manager close what it keeps under that name.
void remove_descriptor(const struct service *service, const char *name);

// Sets what people are shown. It replaces what the manager was not told yet.
void set_status(struct service *service, const char *text);

// Tells the manager what it does not know yet, and that the helper lives. What changes often waits for a moment, unless
// `now`. Returns how long until there is more to tell, in milliseconds; -1: nothing is due.
int tend_service(struct service *service, bool now);
