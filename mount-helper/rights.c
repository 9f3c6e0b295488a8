#include "rights.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <linux/audit.h>
#include <linux/capability.h>
#include <linux/filter.h>
#include <linux/keyctl.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { NOGROUP = 65534 };  // the kernel's fs.overflowgid, which owns no files

#if defined(__x86_64__)
#define NATIVE AUDIT_ARCH_X86_64
#elif defined(__aarch64__)
#define NATIVE AUDIT_ARCH_AARCH64
#endif

#ifdef NATIVE
// What Landlock leaves out, and a server never calls. The kernel asks only which user calls: code in the server would
// reach the user's other processes.
static const unsigned refused[] = {
#ifdef __NR_fork
    __NR_fork, __NR_vfork,  // processes, which would outlive the server and keep /dev/fuse; clone is below
#endif
    // Memory, semaphores and messages that processes share, of System V and of POSIX.
    __NR_shmget, __NR_shmat, __NR_shmctl, __NR_shmdt,
    __NR_semget, __NR_semop, __NR_semtimedop, __NR_semctl,
    __NR_msgget, __NR_msgsnd, __NR_msgrcv, __NR_msgctl,
    __NR_mq_open, __NR_mq_unlink, __NR_mq_timedsend, __NR_mq_timedreceive, __NR_mq_notify, __NR_mq_getsetattr,
    // The user's keys.
    __NR_add_key, __NR_request_key, __NR_keyctl,
    // Priorities and processors.
    __NR_setpriority, __NR_ioprio_set,
    __NR_sched_setaffinity, __NR_sched_setscheduler, __NR_sched_setparam, __NR_sched_setattr,
    // Signals; kill and tgkill are below.
    __NR_tkill, __NR_rt_sigqueueinfo, __NR_rt_tgsigqueueinfo, __NR_pidfd_send_signal,
    // What changes a file by its path. A server changes what it has opened.
#ifdef __NR_chmod
    __NR_chmod, __NR_chown, __NR_lchown, __NR_utime, __NR_utimes, __NR_futimesat,
#endif
    __NR_truncate, __NR_fchmodat, __NR_fchownat,
    __NR_setxattr, __NR_lsetxattr, __NR_removexattr, __NR_lremovexattr,
    // What reads of a file by its path, or hears what happens in a folder.
    __NR_getxattr, __NR_lgetxattr, __NR_listxattr, __NR_llistxattr, __NR_inotify_add_watch, __NR_fanotify_init,
    __NR_openat2,  // its flags are in memory, where no filter reads them
    // Other processes' memory and descriptors: on a kernel without Landlock nothing else refuses these.
    __NR_ptrace, __NR_process_vm_readv, __NR_process_vm_writev, __NR_pidfd_getfd, __NR_process_madvise,
    __NR_move_pages, __NR_migrate_pages, __NR_kcmp,
    // Namespaces, in which a process has all capabilities, and parts of the kernel that a server has no use for.
    __NR_unshare, __NR_setns, __NR_bpf, __NR_perf_event_open, __NR_userfaultfd,
    __NR_io_uring_setup, __NR_io_uring_enter, __NR_io_uring_register,  // they make calls that no filter sees
};

// What a call may be made with: the number that the argument must have, or must not.
struct condition {
  unsigned call, argument;
  enum { MUST_BE, MUST_NOT_BE } how;
  uint32_t value;
};
enum { SET_OWNER_BY_IOCTL = 0x8901, SET_GROUP_BY_IOCTL = 0x8902, NEWEST = 451 };
#endif

int forbid_calls(void) {
#ifdef NATIVE
// Each rule answers itself, or jumps to its end: a rule more changes no jump of another.
#define LOAD(field) BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, field))
#define LOAD_LOW(argument) BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args) + 8 * (argument))
#define LOAD_HIGH(argument) BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args) + 8 * (argument) + 4)
#define IF(test, value, yes, no) BPF_JUMP(BPF_JMP | test | BPF_K, value, yes, no)
#define ANSWER(value) BPF_STMT(BPF_RET | BPF_K, value)
#define REFUSE(error) ANSWER(SECCOMP_RET_ERRNO | (error))
  enum { X32 = 0x40000000 };  // another way to call, with other numbers
  const struct condition conditions[] = {
      // Signal 0, which asks whether a process is there, and signals for its own threads: exec keeps the number.
      {__NR_kill, 1, MUST_BE, 0},
      {__NR_tgkill, 0, MUST_BE, (uint32_t)getpid()},
      // Its own limits: those of another process can kill that one.
      {__NR_prlimit64, 0, MUST_BE, 0},
      // The times of a file that it has opened.
      {__NR_utimensat, 1, MUST_BE, 0},
      // An open by another program waits for the end of a lease.
      {__NR_fcntl, 1, MUST_NOT_BE, F_SETLEASE},
      // A signal to whom a descriptor names its owner.
      {__NR_fcntl, 1, MUST_NOT_BE, F_NOTIFY},
      {__NR_fcntl, 1, MUST_NOT_BE, F_SETOWN},
      {__NR_fcntl, 1, MUST_NOT_BE, F_SETOWN_EX},
      {__NR_ioctl, 1, MUST_NOT_BE, SET_OWNER_BY_IOCTL},
      {__NR_ioctl, 1, MUST_NOT_BE, SET_GROUP_BY_IOCTL},
  };
  const struct sock_filter first[] = {
      LOAD(arch),
      IF(BPF_JEQ, NATIVE, 1, 0), REFUSE(EPERM),
      LOAD(nr),
      IF(BPF_JGE, X32, 0, 1), REFUSE(EPERM),
      IF(BPF_JGT, NEWEST, 0, 1), REFUSE(ENOSYS),       // nobody has looked at what it does
      IF(BPF_JEQ, __NR_clone3, 0, 1), REFUSE(ENOSYS),  // libc calls clone then, whose flags can be read here
      IF(BPF_JEQ, __NR_clone, 0, 4), LOAD(args[0]),
      IF(BPF_JSET, CLONE_THREAD, 0, 1), ANSWER(SECCOMP_RET_ALLOW), REFUSE(EPERM),
  };
  // Landlock asks for no right where a file is opened to be neither read nor written, which is the access mode 3: by
  // such a descriptor a file's mode, owner and times are changed. Its older versions let O_TRUNC pass. A server uses
  // neither.
  const struct sock_filter opens[] = {
#ifdef __NR_open
      IF(BPF_JEQ, __NR_open, 0, 2), LOAD_LOW(1), BPF_STMT(BPF_JMP | BPF_JA, 2),
#endif
      IF(BPF_JEQ, __NR_openat, 0, 7), LOAD_LOW(2),
      BPF_STMT(BPF_ALU | BPF_AND | BPF_K, O_ACCMODE | O_TRUNC),
      IF(BPF_JEQ, O_ACCMODE, 3, 0), IF(BPF_JEQ, O_ACCMODE | O_TRUNC, 2, 0), IF(BPF_JEQ, O_TRUNC, 1, 0),
      ANSWER(SECCOMP_RET_ALLOW), REFUSE(EPERM),
  };
  enum { PART = 7, REFUSED = sizeof refused / sizeof *refused, CONDITIONS = sizeof conditions / sizeof *conditions };
  struct sock_filter steps[sizeof first / sizeof *first + sizeof opens / sizeof *opens + PART * (REFUSED + CONDITIONS) + 1];
  size_t count = 0;
#define ADD(part) memcpy(steps + count, part, sizeof part), count += sizeof part / sizeof *part
  ADD(first);
  ADD(opens);
  for (int i = 0; i < REFUSED; i++) {
    const struct sock_filter part[] = {IF(BPF_JEQ, refused[i], 0, 1), REFUSE(EPERM)};
    ADD(part);
  }
  for (int i = 0; i < CONDITIONS; i++) {
    const struct condition *it = &conditions[i];
    const struct sock_filter must[] = {
        IF(BPF_JEQ, it->call, 0, 6), LOAD_LOW(it->argument), IF(BPF_JEQ, it->value, 0, 3),
        LOAD_HIGH(it->argument), IF(BPF_JEQ, 0, 0, 1), ANSWER(SECCOMP_RET_ALLOW), REFUSE(EPERM),
    };
    // The kernel takes the low half of these arguments alone.
    const struct sock_filter must_not[] = {
        IF(BPF_JEQ, it->call, 0, 4), LOAD_LOW(it->argument), IF(BPF_JEQ, it->value, 0, 1), REFUSE(EPERM), LOAD(nr),
    };
    if (it->how == MUST_BE) ADD(must);
    else ADD(must_not);
  }
  steps[count++] = (struct sock_filter)ANSWER(SECCOMP_RET_ALLOW);
  const struct sock_fprog program = {.len = count, .filter = steps};
  if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0) return 0;
  // A kernel that was built without filters serves all the same. It says EINVAL to both.
  if (errno != EINVAL || prctl(PR_GET_SECCOMP, 0, 0, 0, 0) >= 0 || errno != EINVAL) return -1;
#endif
  return 0;
}

// Takes the last rights: no capability, whatever the process executes, and no right by a setuid program.
static int drop_rights(void) {
  struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
  const struct __user_cap_data_struct none[_LINUX_CAPABILITY_U32S_3] = {{0, 0, 0}};
  return syscall(SYS_capset, &header, none) != 0 ? -1 : prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
}

// Only root may do this. The kernel knows capabilities up to a number that it tells by EINVAL.
static void drop_bounding_set(void) {
  for (int capability = 0; prctl(PR_CAPBSET_DROP, capability, 0, 0, 0) == 0; capability++) continue;
}

int become_user(const struct settings *settings) {
  // Other processes of its user can seize a new program (ptrace, pidfd_getfd) until it makes itself undumpable, and
  // the server gets /dev/fuse. But if the effective group differs from the real one, exec starts the program
  // undumpable. So the helper sets an effective group without rights, and the server's main takes its own group back.
  const gid_t other = settings->gid == NOGROUP ? NOGROUP - 1 : NOGROUP;
  drop_bounding_set();
  // Root's keys are in the keyring of its session. Joined as root, the new one is not of the user's quota. A kernel
  // without keys, or a container that forbids them, forbids them to the server too.
  if (syscall(SYS_keyctl, KEYCTL_JOIN_SESSION_KEYRING, NULL) < 0 && errno != ENOSYS && errno != EPERM) return -1;
  if (initgroups(settings->user, settings->gid) != 0 || setresgid(settings->gid, other, other) != 0 ||
      setresuid(settings->uid, settings->uid, settings->uid) != 0)
    return -1;
  return chdir("/") != 0 ? -1 : drop_rights();
}
