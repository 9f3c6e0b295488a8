// libcrypto's digests, and the Linux calls on files that Swift's Glibc module does not offer.
#pragma once
#include <errno.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <stdint.h>
#include <sys/vfs.h>
#include <unistd.h>

// Not F_OFD_SETLK by name: <fcntl.h> shows it only under _GNU_SOURCE, which would change glibc types that Swift sees
// through its own Glibc module. The number is the kernel's ABI (include/uapi/asm-generic/fcntl.h).
enum { storing_ofd_setlk = 37 };

/// Takes an open file description lock (fcntl(2), F_OFD_SETLK) on the whole file, for writing, without waiting: 0, or
/// -1 with EAGAIN or EACCES when another description has it.
static inline int storing_lock(int fd) {
  struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
  return fcntl(fd, storing_ofd_setlk, &lock);
}

/// lseek(2) with SEEK_DATA: the first byte of data at `offset` or behind it; -1 with ENXIO when there is none.
static inline int64_t storing_seek_data(int fd, int64_t offset) { return lseek(fd, offset, SEEK_DATA); }

/// lseek(2) with SEEK_HOLE: the first byte of a hole at `offset` or behind it; the end of the file is one.
static inline int64_t storing_seek_hole(int fd, int64_t offset) { return lseek(fd, offset, SEEK_HOLE); }

// <fcntl.h> shows it, and its flags, only under _GNU_SOURCE.
int fallocate(int fd, int mode, off_t offset, off_t length);
enum { storing_keep_size_and_punch_hole = 0x01 | 0x02 };

/// Gives the space of a range back (fallocate(2), FALLOC_FL_PUNCH_HOLE); the file keeps its length.
static inline int storing_punch_hole(int fd, int64_t offset, int64_t length) {
  return fallocate(fd, storing_keep_size_and_punch_hole, offset, length);
}

/// The magic number of the filesystem a descriptor is on (statfs(2), f_type), or -1 with errno.
static inline int64_t storing_filesystem_type(int fd) {
  struct statfs status;
  return fstatfs(fd, &status) == 0 ? (int64_t)(uint32_t)status.f_type : -1;
}
