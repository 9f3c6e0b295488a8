// Stands between the server and the disk, to kill it in the middle of an operation, to let operations fail, and to
// record them. Loaded with LD_PRELOAD into `mediafs serve` alone; configured by the environment:
//
//   MEDIAFS_DISK_CONTROL  a file of one page, struct disk_control
//   MEDIAFS_DISK_STORE    the store: only what lies in it is looked at
//   MEDIAFS_DISK_RECORD   if set, every change of the store is appended there (layout: struct record in record.c)
//   MEDIAFS_DISK_BOOT     if set, a file that is read in place of the machine's boot id
#include "parts.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

// The next definition of the function this is in.
#define REAL(name) \
  static __typeof__(name) *real; \
  if (!real) real = (__typeof__(name) *)dlsym(RTLD_NEXT, #name)

typedef ssize_t (*write_function)(int, const void *, size_t, off64_t);

static ssize_t shimmed_write(int file, const void *bytes, size_t length, off64_t offset, write_function real) {
  char path[PATH_MAX];
  if (!control || !path_of(file, NULL, path)) return real(file, bytes, length, offset);
  enum disk_kind kind = kind_of_write(path);
  int phase, error = enter(kind, &phase);
  if (error) {
    leave(kind, -1);
    errno = error;
    return -1;
  }
  begin_recording();
  ssize_t count = real(file, bytes, phase == DISK_HALF ? length / 2 : length, offset);
  if (count > 0 && kind == DISK_PARTIAL && control->loses_unsynced) remember_unsynced(file, offset, (size_t)count);
  if (count > 0 && is_recording()) note(WRITE, path, "", inode_of(file), offset, bytes, (size_t)count);
  end_recording();
  leave(kind, phase);
  return count;
}

ssize_t pwrite(int file, const void *bytes, size_t length, off_t offset) {
  REAL(pwrite);
  return shimmed_write(file, bytes, length, offset, (write_function)real);
}

ssize_t pwrite64(int file, const void *bytes, size_t length, off64_t offset) {
  REAL(pwrite64);
  return shimmed_write(file, bytes, length, offset, (write_function)real);
}

typedef ssize_t (*read_function)(int, void *, size_t, off64_t);

// A thread that never comes back, and one that is killed by its own signal.
static void meet_fate(int file, size_t length, off64_t offset) {
  char path[PATH_MAX];
  const int64_t fate = __atomic_load_n(&control->read_fate, __ATOMIC_SEQ_CST);
  if (fate == DISK_READS || offset > control->fated_offset || offset + (off64_t)length <= control->fated_offset ||
      !path_of(file, NULL, path) || !starts(path, "partial/") ||
      __atomic_fetch_sub(&control->fated_reads, 1, __ATOMIC_SEQ_CST) <= 0)
    return;
  if (fate == DISK_CRASHES) *(volatile int *)8 = 0;
  if (fate == DISK_LOSES_PAGES) {
    // A page that the file does not have is, for the thread, one that the disk cannot read.
    volatile int *page = mmap(NULL, 4096, PROT_READ, MAP_SHARED, memfd_create("lost", 0), 0);
    (void)*page;
  }
  for (;;) pause();
}

static ssize_t shimmed_read(int file, void *bytes, size_t length, off64_t offset, read_function real) {
  char path[PATH_MAX];
  if (control) meet_fate(file, length, offset);
  if (!control || !__atomic_load_n(&control->error, __ATOMIC_SEQ_CST) || !(control->error_kinds >> DISK_READ & 1) ||
      !path_of(file, NULL, path) || !(starts(path, "partial/") || starts(path, "library/")))
    return real(file, bytes, length, offset);
  int phase, error = enter(DISK_READ, &phase);
  ssize_t count = error ? -1 : real(file, bytes, length, offset);
  leave(DISK_READ, phase);
  if (error) errno = error;
  return count;
}

ssize_t pread(int file, void *bytes, size_t length, off_t offset) {
  REAL(pread);
  return shimmed_read(file, bytes, length, offset, (read_function)real);
}

ssize_t pread64(int file, void *bytes, size_t length, off64_t offset) {
  REAL(pread64);
  return shimmed_read(file, bytes, length, offset, (read_function)real);
}

static int shimmed_sync(int file, int (*real)(int)) {
  char path[PATH_MAX];
  if (!control || !path_of(file, NULL, path)) return real(file);
  int phase, error = enter(DISK_SYNC, &phase);
  if (control->loses_unsynced && starts(path, "partial/")) settle_unsynced(file, error != 0);
  if (error) {
    leave(DISK_SYNC, -1);
    errno = error;
    return -1;
  }
  begin_recording();
  int result = real(file);
  if (result == 0 && is_recording()) {
    struct stat status;
    bool is_folder = fstat(file, &status) == 0 && S_ISDIR(status.st_mode);
    note(is_folder ? SYNC_FOLDER : SYNC, path, "", status.st_ino, 0, NULL, 0);
  }
  end_recording();
  leave(DISK_SYNC, phase);
  return result;
}

int fsync(int file) {
  REAL(fsync);
  return shimmed_sync(file, real);
}

int fdatasync(int file) {
  REAL(fdatasync);
  return shimmed_sync(file, real);
}

static int shimmed_truncate(int file, off64_t length, int (*real)(int, off64_t)) {
  char path[PATH_MAX];
  if (!control || !path_of(file, NULL, path)) return real(file, length);
  begin_recording();
  int result = real(file, length);
  if (result == 0 && is_recording()) note(TRUNCATE, path, "", inode_of(file), length, NULL, 0);
  end_recording();
  return result;
}

int ftruncate(int file, off_t length) {
  REAL(ftruncate);
  return shimmed_truncate(file, length, (int (*)(int, off64_t))real);
}

int ftruncate64(int file, off64_t length) {
  REAL(ftruncate64);
  return shimmed_truncate(file, length, (int (*)(int, off64_t))real);
}

static int shimmed_open(int folder, const char *name, int flags, mode_t mode) {
  if (control && boot_file && strcmp(name, "/proc/sys/kernel/random/boot_id") == 0) name = boot_file;
  char path[PATH_MAX];
  if (!control || !is_recording() || !(flags & (O_CREAT | O_TRUNC)) || !path_of(folder, name, path))
    return (int)syscall(SYS_openat, folder, name, flags, mode);
  begin_recording();
  bool was_there = faccessat(folder, name, F_OK, AT_SYMLINK_NOFOLLOW) == 0;
  int file = (int)syscall(SYS_openat, folder, name, flags, mode);
  if (file >= 0 && !was_there) note(CREATE, path, "", inode_of(file), 0, NULL, 0);
  if (file >= 0 && was_there && flags & O_TRUNC) note(TRUNCATE, path, "", inode_of(file), 0, NULL, 0);
  end_recording();
  return file;
}

#define OPEN_MODE(flags)               \
  mode_t mode = 0;                     \
  if (flags & (O_CREAT | O_TMPFILE)) { \
    va_list list;                      \
    va_start(list, flags);             \
    mode = va_arg(list, mode_t);       \
    va_end(list);                      \
  }

int open(const char *name, int flags, ...) {
  OPEN_MODE(flags)
  return shimmed_open(AT_FDCWD, name, flags, mode);
}
int open64(const char *name, int flags, ...) {
  OPEN_MODE(flags)
  return shimmed_open(AT_FDCWD, name, flags | O_LARGEFILE, mode);
}
int openat(int folder, const char *name, int flags, ...) {
  OPEN_MODE(flags)
  return shimmed_open(folder, name, flags, mode);
}
int openat64(int folder, const char *name, int flags, ...) {
  OPEN_MODE(flags)
  return shimmed_open(folder, name, flags | O_LARGEFILE, mode);
}
int __open_2(const char *name, int flags) { return shimmed_open(AT_FDCWD, name, flags, 0); }
int __open64_2(const char *name, int flags) { return shimmed_open(AT_FDCWD, name, flags | O_LARGEFILE, 0); }
int __openat_2(int folder, const char *name, int flags) { return shimmed_open(folder, name, flags, 0); }
int __openat64_2(int folder, const char *name, int flags) {
  return shimmed_open(folder, name, flags | O_LARGEFILE, 0);
}

static int shimmed_rename(int from_folder, const char *from, int to_folder, const char *to, unsigned flags) {
  char path[PATH_MAX], second[PATH_MAX];
  bool is_ours = control && path_of(from_folder, from, path) && path_of(to_folder, to, second);
  if (!is_ours) return (int)syscall(SYS_renameat2, from_folder, from, to_folder, to, flags);
  int phase, error = enter(DISK_RENAME, &phase);
  if (error) {
    leave(DISK_RENAME, -1);
    errno = error;
    return -1;
  }
  begin_recording();
  int result = (int)syscall(SYS_renameat2, from_folder, from, to_folder, to, flags);
  if (result == 0 && is_recording()) note(RENAME, path, second, 0, 0, NULL, 0);
  end_recording();
  leave(DISK_RENAME, phase);
  return result;
}

int rename(const char *from, const char *to) { return shimmed_rename(AT_FDCWD, from, AT_FDCWD, to, 0); }
int renameat(int from_folder, const char *from, int to_folder, const char *to) {
  return shimmed_rename(from_folder, from, to_folder, to, 0);
}
int renameat2(int from_folder, const char *from, int to_folder, const char *to, unsigned flags) {
  return shimmed_rename(from_folder, from, to_folder, to, flags);
}

static int shimmed_unlink(int folder, const char *name, int flags) {
  char path[PATH_MAX];
  if (!control || !path_of(folder, name, path)) return (int)syscall(SYS_unlinkat, folder, name, flags);
  int phase, error = enter(DISK_UNLINK, &phase);
  if (error) {
    leave(DISK_UNLINK, -1);
    errno = error;
    return -1;
  }
  begin_recording();
  int result = (int)syscall(SYS_unlinkat, folder, name, flags);
  if (result == 0 && is_recording()) note(UNLINK, path, "", 0, 0, NULL, 0);
  end_recording();
  leave(DISK_UNLINK, phase);
  return result;
}

int unlink(const char *name) { return shimmed_unlink(AT_FDCWD, name, 0); }
int unlinkat(int folder, const char *name, int flags) { return shimmed_unlink(folder, name, flags); }

// A hole counts as a removal: of a part of a file.
int fallocate(int file, int mode, off_t offset, off_t length) {
  char path[PATH_MAX];
  if (!control || !path_of(file, NULL, path)) return (int)syscall(SYS_fallocate, file, mode, offset, length);
  int phase, error = enter(DISK_UNLINK, &phase);
  int result = error ? -1 : (int)syscall(SYS_fallocate, file, mode, offset, length);
  leave(DISK_UNLINK, error ? -1 : phase);
  if (error) errno = error;
  return result;
}

static int shimmed_make_folder(int folder, const char *name, mode_t mode) {
  char path[PATH_MAX];
  bool is_ours = control && is_recording() && path_of(folder, name, path);
  if (!is_ours) return (int)syscall(SYS_mkdirat, folder, name, mode);
  begin_recording();
  int result = (int)syscall(SYS_mkdirat, folder, name, mode);
  if (result == 0) note(MAKE_FOLDER, path, "", 0, 0, NULL, 0);
  end_recording();
  return result;
}

int mkdir(const char *name, mode_t mode) { return shimmed_make_folder(AT_FDCWD, name, mode); }
int mkdirat(int folder, const char *name, mode_t mode) { return shimmed_make_folder(folder, name, mode); }

int futimens(int file, const struct timespec times[2]) {
  REAL(futimens);
  char path[PATH_MAX];
  if (!control || !is_recording() || !path_of(file, NULL, path)) return real(file, times);
  begin_recording();
  int result = real(file, times);
  if (result == 0 && times) note(TIMES, path, "", inode_of(file), times[1].tv_sec, NULL, 0);
  end_recording();
  return result;
}
