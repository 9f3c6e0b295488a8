#include "mount_mediafs.h"

#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <limits.h>
#include <sched.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "complain.h"

// Finds the program mediafs beside the helper or where `make install` puts it, else in the usual places. It does not
// use PATH, because mount(8) may run with an empty environment.
static bool find_mediafs(char *path, size_t space) {
  static const char *const beside[] = {"mediafs", "../bin/mediafs", "../../bin/mediafs"};
  static const char *const usual[] = {"/usr/local/bin/mediafs", "/usr/bin/mediafs", "/bin/mediafs"};
  char own[PATH_MAX];
  ssize_t length = readlink("/proc/self/exe", own, sizeof own - 1);
  if (length > 0) {
    own[length] = 0;
    char *slash = strrchr(own, '/');
    if (slash) *slash = 0;
    for (size_t i = 0; i < sizeof beside / sizeof *beside; i++) {
      if ((size_t)snprintf(path, space, "%s/%s", own, beside[i]) < space && access(path, X_OK) == 0) return true;
    }
  }
  for (size_t i = 0; i < sizeof usual / sizeof *usual; i++) {
    if ((size_t)snprintf(path, space, "%s", usual[i]) < space && access(path, X_OK) == 0) return true;
  }
  return false;
}

// mount -N: enters the mount namespace of a process, or the one that a file stands for.
static bool enter_namespace(const char *name) {
  char path[PATH_MAX];
  const bool is_process = *name && strspn(name, "0123456789") == strlen(name);
  if ((size_t)snprintf(path, sizeof path, is_process ? "/proc/%s/ns/mnt" : "%s", name) >= sizeof path) return false;
  int fd = open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return false;
  bool entered = setns(fd, CLONE_NEWNS) == 0;
  close(fd);
  return entered;
}

int mount_mediafs(int argc, char **argv) {
  const char *options = "defaults";
  const char *namespace = NULL;
  bool fake = false, verbose = false, sloppy = false;
  int found;
  while ((found = getopt(argc, argv, "sfnvrwt:N:o:h")) != -1) switch (found) {
      case 's': sloppy = true; break;
      case 'f': fake = true; break;
      case 'v': verbose = true; break;
      case 'N': namespace = optarg; break;
      case 'o': options = optarg; break;
      case 'w':
        complain("a mount of mediafs is read-only: remove the option -w");
        return 2;
      case 'n':  // mediafs never writes /etc/mtab
      case 'r':  // a mount is always read-only
      case 't': break;  // always mediafs: mount(8) calls this helper for no other type
      default:
        complain("usage: mount.mediafs SOURCE TARGET [-sfnvrw] [-t TYPE] [-N NAMESPACE] [-o OPTIONS]");
        return found == 'h' ? 0 : 2;
    }
  if (argc - optind != 2) {
    complain("mount.mediafs takes two arguments: the manifest, and the folder to mount at");
    return 2;
  }
  if (fake) return 0;

  char program[PATH_MAX];
  if (!find_mediafs(program, sizeof program)) {
    complain("cannot find the program mediafs: is it installed beside mount.mediafs?");
    return 1;
  }
  if (namespace && !enter_namespace(namespace)) {
    complain("cannot enter the mount namespace %s: %s", namespace, strerror(errno));
    return 1;
  }
  // Unless the user gave `ro`, mount(8) puts `rw` before all options: for `defaults`, without options, and in place of
  // the user's own `rw`. So a leading `rw` does not tell what the user wants.
  if (strncmp(options, "rw", 2) == 0 && (options[2] == ',' || options[2] == 0)) options += options[2] == ',' ? 3 : 2;
  // fusermount3 and other programs are found in PATH.
  setenv("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", 0);
  char *arguments[12];
  int count = 0;
  arguments[count++] = "mediafs";
  arguments[count++] = "mount";
  arguments[count++] = "--manifest";
  arguments[count++] = argv[optind];
  arguments[count++] = "-o";
  arguments[count++] = (char *)options;
  if (verbose) arguments[count++] = "--verbose";
  if (sloppy) arguments[count++] = "--sloppy";
  arguments[count++] = "--";
  arguments[count++] = argv[optind + 1];
  arguments[count] = NULL;
  execv(program, arguments);
  complain("cannot run %s: %s", program, strerror(errno));
  return 1;
}
