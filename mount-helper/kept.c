#include "kept.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "complain.h"
#include "mounting.h"
#include "session.h"

enum { RECORD_VERSION = 1, FUSE_MAJOR = 10, FUSE_MINOR = 229 };
static const char magic[8] = {'m', 'e', 'd', 'i', 'a', 'f', 's', 'M'};

// What the next helper must know of the mount. Servers write to the session memory, so it is not there: root's helper
// unmounts what this names.
struct record {
  char magic[8];
  uint32_t version;
  uint32_t device;
  uint64_t id;
  uint64_t unique;
  uint64_t session;  // the inode number of the session memory
  uint32_t uid;
  uint32_t gid;
  char mountpoint[PATH_MAX];
  char options[PATH_MAX];  // for libfuse, as far as they fit
};

static int seal_record(const struct record *record) {
  const int seals = F_SEAL_WRITE | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;
  const int file = memfd_create("mediafs mount", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  if (file < 0) return -1;
  if (write(file, record, sizeof *record) == sizeof *record && fcntl(file, F_ADD_SEALS, seals) == 0) return file;
  const int error = errno;
  close(file);
  errno = error;
  return -1;
}

int keep_mount(const struct service *service, const struct settings *settings, const struct mount *mount, int session) {
  static struct record record;
  struct stat status;
  record = (struct record){.version = RECORD_VERSION, .device = mount->device, .id = mount->id,
                           .unique = mount->unique, .uid = settings->uid, .gid = settings->gid};
  memcpy(record.magic, magic, sizeof magic);
  snprintf(record.mountpoint, sizeof record.mountpoint, "%s", settings->mountpoint);
  snprintf(record.options, sizeof record.options, "%s", settings->mount_options);
  int file = -1;
  if (fstat(session, &status) == 0) {
    record.session = status.st_ino;
    file = seal_record(&record);
  }
  const bool kept = file >= 0 && store_descriptor(service, KEPT_RECORD, file) == 0 &&
                    store_descriptor(service, KEPT_SESSION, session) == 0 &&
                    store_descriptor(service, KEPT_DEVICE, mount->device_fd) == 0;
  if (!kept) complain("the service manager cannot keep the mount: %s", strerror(errno));
  if (file >= 0) close(file);
  return kept ? 0 : -1;
}

void forget_mount(const struct service *service) {
  remove_descriptor(service, KEPT_DEVICE);
  remove_descriptor(service, KEPT_SESSION);
  remove_descriptor(service, KEPT_RECORD);
}

static bool has_seals(int file, int seals) {
  const int found = fcntl(file, F_GET_SEALS);
  return found >= 0 && (found & seals) == seals;
}

// The number of the connection behind a /dev/fuse; 0 if the kernel does not tell.
static uint32_t connection_of(int device) {
  char path[64], text[1024];
  snprintf(path, sizeof path, "/proc/self/fdinfo/%d", device);
  const int file = open(path, O_RDONLY | O_CLOEXEC);
  const ssize_t count = file >= 0 ? read(file, text, sizeof text - 1) : 0;
  if (file >= 0) close(file);
  text[count > 0 ? count : 0] = 0;
  const char *const found = strstr(text, "fuse_connection:");
  return found ? (uint32_t)strtoul(found + strlen("fuse_connection:"), NULL, 10) : 0;
}

// Why the three descriptors are not what keep_mount() gives; NULL if they are.
static const char *find_fault(struct kept kept, struct record *record) {
  struct stat status;
  if (kept.device < 0 || kept.session < 0 || kept.record < 0) return "a part of it is missing";
  if (!has_seals(kept.record, F_SEAL_WRITE | F_SEAL_SHRINK | F_SEAL_GROW) ||
      pread(kept.record, record, sizeof *record, 0) != sizeof *record ||
      memcmp(record->magic, magic, sizeof magic) != 0)
    return "its record is none of mediafs";
  if (record->version != RECORD_VERSION) return "its record is of another version of mediafs";
  if (!memchr(record->mountpoint, 0, sizeof record->mountpoint) || record->mountpoint[0] != '/' ||
      !memchr(record->options, 0, sizeof record->options))
    return "its record is damaged";
  if (!has_seals(kept.session, F_SEAL_SHRINK | F_SEAL_GROW) || fstat(kept.session, &status) != 0 ||
      status.st_size != SESSION_SIZE || (fcntl(kept.session, F_GETFL) & O_ACCMODE) != O_RDWR)
    return "its memory is none of mediafs";
  if (status.st_ino != record->session) return "its memory is another mount's";
  if (fstat(kept.device, &status) != 0 || !S_ISCHR(status.st_mode) ||
      status.st_rdev != makedev(FUSE_MAJOR, FUSE_MINOR))
    return "its device is not /dev/fuse";
  const uint32_t connection = connection_of(kept.device);
  if (connection != 0 && connection != record->device) return "its device is another mount's";
  return NULL;
}

// Why this helper cannot go on with a mount that was kept; NULL if it can.
static const char *find_difference(const struct settings *settings, const struct record *record, int session,
                                   const struct mount *mount) {
  if (!is_connected(mount)) return "it was unmounted";
  if (!*settings->mountpoint) return "the service cannot mount now";
  if (strcmp(record->mountpoint, settings->mountpoint) != 0) return "the mountpoint is another one now";
  if (record->uid != settings->uid || record->gid != settings->gid) return "its user is another one now";
  if (!is_there(mount)) return "it is not in the table of mounts";
  if (session_version(session) != SESSION_VERSION) return "this program cannot read what its servers left";
  if (!was_served(session)) return "it was not served yet";
  return NULL;
}

enum adopted adopt_mount(const struct service *service, const struct settings *settings, struct kept kept,
                         struct mount *mount, int *session) {
  if (kept.device < 0 && kept.session < 0 && kept.record < 0) return NOTHING_KEPT;
  static struct record record;
  const char *why = find_fault(kept, &record);
  if (why) {
    complain("cannot go on with the mount that the service manager kept: %s", why);
    forget_mount(service);
    return UNUSABLE;
  }
  *mount = (struct mount){.device_fd = kept.device, .device = record.device, .id = record.id, .unique = record.unique};
  close(kept.record);
  why = find_difference(settings, &record, kept.session, mount);
  if (!why) {
    complain("goes on with the mount at %s, which the service manager kept", settings->mountpoint);
    if (strncmp(record.options, settings->mount_options, sizeof record.options - 1) != 0)
      complain("the mount options have changed: stop and start the service for them to count");
    *session = kept.session;
    return ADOPTED;
  }
  complain("ends the mount at %s, which the service manager kept: %s", record.mountpoint, why);
  struct settings old = *settings;
  old.mountpoint = record.mountpoint;
  old.uid = record.uid;
  old.gid = record.gid;
  unmount_filesystem(&old, mount);
  close(kept.session);
  forget_mount(service);
  return NOTHING_KEPT;
}
