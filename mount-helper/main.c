// The mount helper (PROTOCOL.md). Under the name mount.mediafs, it is mount(8)'s helper for the type mediafs.
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <pwd.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "complain.h"
#include "descriptors.h"
#include "kept.h"
#include "mount_mediafs.h"
#include "server.h"
#include "service.h"
#include "settings.h"
#include "supervise.h"

// If the caller closed descriptor 0, 1 or 2, the next file that the helper opens would take its number.
static void keep_standard_descriptors(void) {
  int fd;
  do {
    fd = open("/dev/null", O_RDWR);
  } while (fd >= 0 && fd <= STDERR_FILENO);
  if (fd > STDERR_FILENO) close(fd);
}

static int number(const char *text) {
  char *end;
  errno = 0;
  long value = strtol(text, &end, 10);
  if (errno != 0 || *text == 0 || *end != 0 || value < 0 || value > 1 << 30) {
    complain("not a number: %s", text);
    exit(2);
  }
  return (int)value;
}

static void find_user(struct settings *settings, const char *name) {
  if (geteuid() != 0) {
    complain("only root can mount for another user");
    exit(1);
  }
  errno = 0;
  const struct passwd *entry = getpwnam(name);
  if (!entry) {
    complain("user=%s: there is no such user on this machine", name);
    exit(1);
  }
  settings->user = strdup(entry->pw_name);
  settings->home = strdup(entry->pw_dir);
  settings->shell = strdup(entry->pw_shell);
  settings->uid = entry->pw_uid;
  settings->gid = entry->pw_gid;
  if (!settings->user || !settings->home || !settings->shell) {
    complain("not enough memory");
    exit(1);
  }
}

// A service that restarts cannot mount: what its manager kept ends in order.
static void end_kept(int status) {
  const struct settings none = {.mountpoint = "", .uid = getuid(), .gid = getgid()};
  struct service service;
  struct mount mount;
  int session;
  const struct kept kept = take_kept(true);
  open_service(&service, true);
  adopt_mount(&service, &none, kept, &mount, &session);
  exit(status);
}

static void parse(int argc, char **argv, struct settings *settings) {
  enum { MOUNTPOINT = 256, SERVER, OPTIONS_FD, INPUT_FD, FOREGROUND, USER, MADE_FOLDERS, WATCHDOG, STATE, LAUNCHER,
         SERVICE, GIVE_UP };
  static const struct option known[] = {
      {"mountpoint", required_argument, NULL, MOUNTPOINT}, {"server", required_argument, NULL, SERVER},
      {"options-fd", required_argument, NULL, OPTIONS_FD}, {"input-fd", required_argument, NULL, INPUT_FD},
      {"foreground", no_argument, NULL, FOREGROUND},       {"user", required_argument, NULL, USER},
      {"made-folders", required_argument, NULL, MADE_FOLDERS}, {"watchdog", required_argument, NULL, WATCHDOG},
      {"state", required_argument, NULL, STATE},           {"launcher", no_argument, NULL, LAUNCHER},
      {"service", no_argument, NULL, SERVICE},             {"give-up", required_argument, NULL, GIVE_UP},
      {NULL, 0, NULL, 0}};
  *settings = (struct settings){
      .mount_options = "ro,subtype=mediafs", .options_fd = -1, .input_fd = -1, .uid = getuid(), .gid = getgid(),
      .watchdog = 10000, .state = ""};
  int found, give_up = -1;
  while ((found = getopt_long(argc, argv, "o:", known, NULL)) != -1) switch (found) {
      case MOUNTPOINT: settings->mountpoint = optarg; break;
      case SERVER: settings->server = optarg; break;
      case OPTIONS_FD: settings->options_fd = number(optarg); break;
      case INPUT_FD: settings->input_fd = number(optarg); break;
      case FOREGROUND: settings->foreground = true; break;
      case USER: find_user(settings, optarg); break;
      case MADE_FOLDERS: settings->made_folders = number(optarg); break;
      case WATCHDOG: settings->watchdog = number(optarg); break;
      case STATE:
        settings->state = optarg;
        settings->state_length = strlen(optarg);
        break;
      case LAUNCHER: settings->launcher = true; break;
      case GIVE_UP: give_up = number(optarg); break;
      case SERVICE: settings->service = settings->foreground = true; break;
      case 'o': settings->mount_options = optarg; break;
      default: exit(2);
    }
  if (give_up >= 0) end_kept(give_up);
  if (optind != argc || !settings->mountpoint || settings->mountpoint[0] != '/' || !settings->server ||
      settings->options_fd < 0) {
    complain("this is the mount helper of mediafs: use `mediafs mount`");
    exit(2);
  }
  // The caller may have more open. The helper may run for days and would keep open a pipe whose reader waits for its
  // end, a lock, or a file of a user with more rights.
  const struct kept *const left = &settings->kept;
  settings->kept = take_kept(settings->service);
  const int kept[] = {settings->options_fd, settings->input_fd, left->device, left->session, left->record};
  close_all_but(kept, sizeof kept / sizeof *kept);
  // The server does not inherit them: the helper sends them over the link.
  if (fcntl(settings->options_fd, F_SETFD, FD_CLOEXEC) != 0 ||
      (settings->input_fd >= 0 && fcntl(settings->input_fd, F_SETFD, FD_CLOEXEC) != 0)) {
    complain("--options-fd or --input-fd names a descriptor that is not open");
    exit(2);
  }
  // The server, which runs as the user, may open them again through /proc/self/fd.
  if (settings->user && (fchown(settings->options_fd, settings->uid, settings->gid) != 0 ||
                         (settings->input_fd >= 0 && fchown(settings->input_fd, settings->uid, settings->gid) != 0))) {
    complain("cannot give the options to %s: %s", settings->user, strerror(errno));
    exit(1);
  }
}

static volatile sig_atomic_t helper_process;

// The caller of `mediafs mount` sees and signals the process that waits, which passes the signal on to the helper in
// the background.
static void pass_on(int signal) {
  (void)signal;
  if (helper_process > 0) kill(helper_process, SIGTERM);
}

// Waits for the helper's byte that tells whether it has mounted, or for the helper's end. If mounting failed, this
// waits until the helper has exited, so that the caller finds no process left.
static int await_announcement(pid_t helper, int from) {
  helper_process = helper;
  const struct sigaction action = {.sa_handler = pass_on, .sa_flags = SA_RESTART};
  sigaction(SIGTERM, &action, NULL);
  sigaction(SIGINT, &action, NULL);
  signal(SIGHUP, SIG_IGN);
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, NULL);
  char status;
  ssize_t count;
  do {
    count = read(from, &status, 1);
  } while (count < 0 && errno == EINTR);
  if (count == 1 && status == 0) return 0;
  // A thread of the helper may wait for a filesystem of the user's: the caller does not.
  for (int waits = 0; waits < 100 && waitpid(helper, NULL, WNOHANG) == 0; waits++) usleep(50000);
  if (count == 1) return status;
  complain("the mount helper was killed before the mount was ready");
  return 1;
}

int main(int argc, char **argv) {
  hide_from_others();  // first, because the open options file and the environment hold secrets
  keep_standard_descriptors();
  const char *name = argc > 0 ? strrchr(argv[0], '/') : NULL;
  name = name ? name + 1 : argc > 0 ? argv[0] : "";
  if (strcmp(name, "mount.mediafs") == 0) return mount_mediafs(argc, argv);

  struct settings settings;
  parse(argc, argv, &settings);
  block_signals();
  if (settings.foreground) return supervise(&settings, -1);

  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) {
    complain("cannot create a pipe: %s", strerror(errno));
    return 1;
  }
  pid_t helper = fork();
  if (helper < 0) {
    complain("cannot go into the background: %s", strerror(errno));
    return 1;
  }
  if (helper > 0) {
    close(ends[1]);
    return await_announcement(helper, ends[0]);
  }
  close(ends[0]);
  setsid();  // leaves the terminal: neither ^C nor its end reaches the helper
  if (chdir("/") != 0) complain("cannot leave the current folder: %s", strerror(errno));
  return supervise(&settings, ends[1]);
}
