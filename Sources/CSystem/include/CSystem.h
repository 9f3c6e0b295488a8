// glibc and Linux calls that Swift's Glibc module does not offer (variadic functions, macros, newer calls).
#pragma once
// No _GNU_SOURCE here: it would change glibc types (fd_set) that Swift also sees through its own Glibc module.
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <linux/fs.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/eventfd.h>
#include <sys/file.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/statvfs.h>
#include <sys/types.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

/// Seconds and nanoseconds of CLOCK_BOOTTIME as one number: it counts while the machine sleeps.
int64_t csystem_boottime_nanoseconds(void);

/// open(2); variadic in C, which Swift cannot call.
static inline int csystem_open(const char *path, int flags, mode_t mode) { return open(path, flags, mode); }
static inline int csystem_openat(int dir, const char *path, int flags, mode_t mode) {
  return openat(dir, path, flags, mode);
}
/// openat2(2) of a path of which no part may be a symbolic link (ELOOP).
int csystem_open_without_links(const char *path, int flags);
/// openat2(2) of what an open folder has under that name (O_PATH, close-on-exec): a symbolic link is not followed, and
/// what is mounted there is not entered (EXDEV). It asks no filesystem but the folder's.
int csystem_open_entry(int folder, const char *name);
/// fcntl(2) with an int argument.
static inline int csystem_fcntl(int fd, int command, int argument) { return fcntl(fd, command, argument); }
/// CRC-32C of `count` bytes that follow those of which `sum` is the CRC-32C; 0 before the first.
uint32_t csystem_crc32c(uint32_t sum, const void *bytes, size_t count);
/// The same, without the processor's instruction.
uint32_t csystem_crc32c_by_tables(uint32_t sum, const void *bytes, size_t count);
/// Has malloc(3) use at most `most` arenas from now on; 0 when it cannot.
int csystem_limit_malloc_arenas(int most);
/// renameat2(2) with RENAME_NOREPLACE.
int csystem_rename_noreplace(int from_dir, const char *from, int to_dir, const char *to);
/// What a thread of a server notes in the session memory (mount-helper/PROTOCOL.md).
struct csystem_record {
  uint64_t answers;  // how many requests it answered
  uint32_t thread;   // its number for the kernel; 0: there is no such thread
  uint32_t died;     // the signal that it raised itself
  uint32_t request;  // where the session memory has the request that it serves; 0: in the thread's own buffer
  uint32_t kind;     // what a thread without a buffer is busy with
  uint64_t turn;     // odd while such a thread is busy; another number for each piece of work
  uint64_t free[4];
};
/// Makes `record` the calling thread's, and ends that.
void csystem_begin_record(struct csystem_record *record);
void csystem_end_record(void);
/// Notes that the calling thread, if it has a record, begins another piece of work; `kind` 0: that it rests.
void csystem_note_work(uint32_t kind);
/// Has the process, when it dies of a signal such as SIGSEGV, write to stderr where in the program that was. Called
/// before it has a second thread.
void csystem_report_deaths(void);
/// Gives the calling thread a stack for that, which works also when its own is used up, and takes it back.
void csystem_give_stack(void);
void csystem_take_stack(void);
/// Notes the terminal's modes (termios(3)), before a program draws on all of it; -1 and errno.
int csystem_note_terminal(void);
/// Has the process, when it dies of a signal such as SIGSEGV, write `bytes` (at most 256) to the standard output, and
/// give the terminal the modes back that were noted.
void csystem_guard_terminal(const char *bytes, size_t count);
/// Has the calling thread interrupt no other that runs when it is woken (SCHED_BATCH, sched(7)).
void csystem_stand_back(void);
/// Names the calling thread (at most 15 bytes are kept).
void csystem_name_thread(const char *name);
/// Sends one descriptor with `length` bytes; returns what sendmsg(2) does.
ssize_t csystem_send_descriptor(int socket, const void *bytes, size_t length, int descriptor);
/// Receives bytes and at most one descriptor (-1 if none came), close-on-exec.
ssize_t csystem_receive_descriptor(int socket, void *bytes, size_t length, int *descriptor);
/// Raises the soft limit of open descriptors to the hard one; how many there may be now.
uint64_t csystem_raise_descriptor_limit(void);
/// Gives the process its own group back if its effective one is another, and makes it undumpable: no other process of
/// its user's may read its memory or take its descriptors (root may). 0, or -1 and errno.
int csystem_become_private(void);
/// open(2) for reading, close-on-exec, by root with the rights of `user` and its groups; what the process was, it is
/// again afterwards. -1 and errno; EPERM when it could not become `user`, or not root again.
int csystem_open_as(const char *user, const char *path);
/// umount2(2) of the topmost mount at `path` if that has the device number `device` (minor; the major is 0), without
/// following a symbolic link anywhere; `lazily` detaches a busy mount at once. -1 and errno; ESTALE when another one is
/// there. Root only.
int csystem_unmount(const char *path, uint32_t device, int lazily);
/// The number of the mount that `path` lies in, which no other mount of this boot has; 0 where the kernel (before 6.8)
/// does not tell it.
uint64_t csystem_unique_mount_id(const char *path);
/// The number of the mount that an open file or folder lies in; 0 where the kernel (before 5.8) does not tell it. Once
/// nothing holds that mount any more, another one may get its number.
uint64_t csystem_mount_id(int descriptor);
/// strptime(3), which Swift does not import: reads a date, and returns what follows it; NULL for another form.
const char *csystem_parse_date(const char *text, const char *form, struct tm *fields);
/// memfd_create(2): a file without a name, which children inherit; -1 and errno.
int csystem_make_memory_file(const char *name);
/// Makes such a file one that nobody can change any more. 0, or -1 and errno.
int csystem_seal_memory_file(int file);
/// Has the kernel give this process the orphans among its descendants, in place of init. 0, or -1 and errno.
int csystem_adopt_orphans(void);
/// Has the kernel send this process that signal when its parent ends; 0: none. 0, or -1 and errno.
int csystem_set_death_signal(int number);
/// A descriptor (non-blocking, close-on-exec) that is readable once a child has ended; SIGCHLD is blocked from then on.
/// -1 and errno.
int csystem_open_child_watch(void);
/// Starts a program with those arguments, the first of which is its path: in a session of its own, with no signal
/// blocked or ignored, its standard input, output and error at those three, and no other descriptor. The kernel kills
/// it (SIGKILL) if the calling thread ends. If it cannot be run it says why at `error`, and ends with 127. Its process
/// id, or -1 and errno. Only for a process without a second thread.
pid_t csystem_start_program(char *const *words, int input, int output, int error);
/// Whether what is mounted at `path` has lost its server (1 or 0). Asks the filesystem, not what the kernel remembers
/// of it.
int csystem_is_dead_mount(const char *path);
/// How many packets came out of order over the TCP connection of `socket`, whose local port is `port`. -1 when that is
/// no such connection (any more), or the kernel (before 5.4) does not count them.
int64_t csystem_misordered_packets(int socket, int port);
/// The user id of a Unix socket's peer, or -1.
int64_t csystem_peer_uid(int socket);
/// A netlink socket (non-blocking, close-on-exec) that becomes readable when an address of this machine comes or goes;
/// -1 and errno when there is none.
int csystem_open_address_watch(void);
/// Writes the addresses of this machine that can reach others (not loopback, not of interfaces that are down), a line
/// each, sorted by no rule, into `text`; returns how many bytes, cut to `length`, or -1.
ssize_t csystem_local_addresses(char *text, size_t length);
/// Nanoseconds of CLOCK_MONOTONIC, which stands still while the machine sleeps.
int64_t csystem_monotonic_nanoseconds(void);
/// fork(2), which Swift does not import. Only for a process without a second thread.
pid_t csystem_fork(void);
/// Whether the kernel's FUSE knows passthrough (Linux 6.9): 1 or 0; -1 and errno if /dev/fuse cannot be opened.
int csystem_knows_passthrough(void);
/// The version of the kernel's Landlock; -1 and errno without it. Version 1 cannot grant to move a file from one folder
/// to another.
int csystem_landlock_version(void);
/// A set of rules for files (close-on-exec) that grants nothing of what this version can refuse; -1 and errno.
int csystem_landlock_begin(int version);
/// Has it grant to read the open `file`, or what is in that folder, and to change it if `writes`; -1 and errno.
int csystem_landlock_allow(int rules, int version, int file, int writes);
/// Restricts the calling thread, and those that it starts from now on, to what `rules` grant, for ever; -1 and errno.
int csystem_landlock_end(int rules);
/// open(2) of a file that such a rule is to name, without following a link at the end (O_PATH, close-on-exec).
int csystem_open_place(const char *path);
