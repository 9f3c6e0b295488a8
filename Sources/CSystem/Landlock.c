#define _GNU_SOURCE
#include "CSystem.h"
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>

// As linux/landlock.h has it, which may be older on the machine that builds than the kernel that runs.
enum { CREATE_RULESET = 444, ADD_RULE = 445, RESTRICT_SELF = 446 };
enum { TELL_VERSION = 1, PATH_BENEATH = 1 };
struct ruleset {
  uint64_t files, network, scopes;
};
struct __attribute__((packed)) rule {
  uint64_t rights;
  int32_t file;
};

#define WRITE_FILE (UINT64_C(1) << 1)
#define READ_FILE (UINT64_C(1) << 2)
#define READ_DIR (UINT64_C(1) << 3)
#define REMOVE_DIR (UINT64_C(1) << 4)
#define REMOVE_FILE (UINT64_C(1) << 5)
#define MAKE_DIR (UINT64_C(1) << 7)
#define MAKE_REG (UINT64_C(1) << 8)
#define MAKE_SOCK (UINT64_C(1) << 9)
#define REFER (UINT64_C(1) << 13)
#define TRUNCATE (UINT64_C(1) << 14)

// The rights to files that a version of Landlock can refuse. They are refused unless a rule grants them; no rule grants
// to execute, to make links, FIFOs and devices, or to control devices.
static uint64_t refusable(int version) {
  const int count = version >= 5 ? 16 : version >= 3 ? 15 : 14;
  return (UINT64_C(1) << count) - 1;
}

int csystem_landlock_version(void) {
  const long version = syscall(CREATE_RULESET, NULL, (size_t)0, TELL_VERSION);
  return version < 0 ? -1 : (int)version;
}

int csystem_landlock_begin(int version) {
  struct ruleset set = {.files = refusable(version)};
  if (version >= 4) set.network = 1;  // bind(2) of a TCP socket: the server only connects
  if (version >= 6) set.scopes = 3;   // abstract sockets and signals of processes that are not restricted by this
  return (int)syscall(CREATE_RULESET, &set, sizeof set, 0);
}

int csystem_landlock_allow(int rules, int version, int file, int writes) {
  struct stat status;
  if (fstat(file, &status) != 0) return -1;
  uint64_t rights = READ_FILE | READ_DIR;
  // The same for every folder: the kernel refuses to move a file to where more is granted.
  if (writes)
    rights |= WRITE_FILE | REMOVE_DIR | REMOVE_FILE | MAKE_DIR | MAKE_REG | MAKE_SOCK | REFER | TRUNCATE;
  if (!S_ISDIR(status.st_mode)) rights &= WRITE_FILE | READ_FILE | TRUNCATE;
  const struct rule rule = {.rights = rights & refusable(version), .file = file};
  return (int)syscall(ADD_RULE, rules, PATH_BENEATH, &rule, 0);
}

int csystem_open_place(const char *path) { return open(path, O_PATH | O_CLOEXEC | O_NOFOLLOW); }

int csystem_landlock_end(int rules) {
  if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) return -1;
  return (int)syscall(RESTRICT_SELF, rules, 0);
}
