// libfuse's low-level API, and the parts of it that Swift cannot reach by itself (versioned macros, bit-fields).
// Each libfuse since 3.14 is taken with the 3.14 interface: where a later one differs, it is told apart here.
#pragma once
#define FUSE_USE_VERSION 314
#include <fuse3/fuse_lowlevel.h>
#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/uio.h>

typedef ssize_t (*cfuse_read_function)(int fd, void *buffer, size_t length, void *userdata);
typedef ssize_t (*cfuse_write_function)(int fd, struct iovec *parts, int count, void *userdata);

/// A session of no options (the mount options are the helper's), or NULL; libfuse says why on stderr.
static inline struct fuse_session *cfuse_session_new(const struct fuse_lowlevel_ops *operations, void *userdata) {
  char name[] = "mediafs";
  char *arguments[] = {name, NULL};
  struct fuse_args list = FUSE_ARGS_INIT(1, arguments);
  struct fuse_session *session = fuse_session_new(&list, operations, sizeof *operations, userdata);
  fuse_opt_free_args(&list);
  return session;
}

/// Gives `session` the descriptor `fd`, which is its own from then on: 0, or a negated errno.
static inline int cfuse_attach(struct fuse_session *session, int fd, cfuse_read_function read,
                               cfuse_write_function write) {
  // Designated and zeroed: libfuse 3.17 has a further member.
  const struct fuse_custom_io io = {.read = read, .writev = write};
  return fuse_session_custom_io(session, &io, fd);
}

/// What the INIT reply asks of the kernel, beside the sizes in `connection`.
static inline void cfuse_choose_features(struct fuse_conn_info *connection) {
  // An inode's bytes never change, so the page cache is never dropped because a size or a time looks different.
  unsigned int unwanted = FUSE_CAP_AUTO_INVAL_DATA;
  // Replies are copied: splicing was measured and is no faster.
  unwanted |= FUSE_CAP_SPLICE_READ | FUSE_CAP_SPLICE_WRITE | FUSE_CAP_SPLICE_MOVE;
  // A large O_DIRECT read is not split into concurrent ones: the kernel would wait for those where no kill reaches it.
  unwanted |= FUSE_CAP_ASYNC_DIO;
#if FUSE_VERSION >= FUSE_MAKE_VERSION(3, 17)
  fuse_unset_feature_flag(connection, unwanted);
#else
  connection->want &= ~unwanted;
#endif
}

/// Answers an open of a file: 0, or a negated errno (then the kernel sends no release).
static inline int cfuse_reply_open(fuse_req_t request, uint64_t handle, bool direct_io) {
  struct fuse_file_info info = {.fh = handle, .direct_io = direct_io, .keep_cache = true, .noflush = true};
  return fuse_reply_open(request, &info);
}

/// Answers a create: 0, or a negated errno. No page is kept for such a handle: an open past the server, of the same
/// file and at the same time, would fail.
static inline int cfuse_reply_create(fuse_req_t request, const struct fuse_entry_param *entry, uint64_t handle) {
  struct fuse_file_info info = {.fh = handle, .direct_io = true, .noflush = true};
  return fuse_reply_create(request, entry, &info);
}

// Passthrough (linux/fuse.h 7.40, Linux 6.9), which the headers of this machine may not know.

/// Asks for passthrough to files on a filesystem that is stacked `depth - 1` times. False where this libfuse has no
/// interface for it: the reply to INIT is then to be changed by hand.
static inline bool cfuse_want_passthrough(struct fuse_conn_info *connection, uint32_t depth) {
#if FUSE_VERSION >= FUSE_MAKE_VERSION(3, 17)
  if (fuse_set_feature_flag(connection, FUSE_CAP_PASSTHROUGH)) connection->max_backing_stack_depth = depth - 1;
  return true;
#else
  (void)connection;
  (void)depth;
  return false;
#endif
}

/// Answers an open of a file that the kernel reads from the backing file `id`: 0, or a negated errno. The page cache is
/// that file's own; to keep ours with it is an error.
static inline int cfuse_reply_open_passthrough(fuse_req_t request, uint64_t handle, int32_t id) {
#if FUSE_VERSION >= FUSE_MAKE_VERSION(3, 17)
  struct fuse_file_info info = {.fh = handle, .backing_id = id, .noflush = true};
  return fuse_reply_open(request, &info);
#else
  // struct fuse_open_out, with what was padding as the id; FOPEN_NOFLUSH and FOPEN_PASSTHROUGH.
  const struct {
    uint64_t handle;
    uint32_t flags;
    int32_t backing;
  } reply = {handle, 1u << 5 | 1u << 7, id};
  return fuse_reply_buf(request, (const char *)&reply, sizeof reply);
#endif
}

/// Answers an open of a folder, whose listing the kernel may keep: 0, or a negated errno.
static inline int cfuse_reply_opendir(fuse_req_t request) {
  struct fuse_file_info info = {.cache_readdir = true, .keep_cache = true};
  return fuse_reply_open(request, &info);
}

/// Stores `value` after all stores before it in the program.
static inline void cfuse_commit(void *place, uint32_t value) {
  __atomic_store_n((uint32_t *)place, value, __ATOMIC_RELEASE);
}
static inline void cfuse_commit_long(void *place, uint64_t value) {
  __atomic_store_n((uint64_t *)place, value, __ATOMIC_RELEASE);
}

/// Adds 1 to a count that several threads add to.
static inline void cfuse_count(void *place) { __atomic_fetch_add((uint64_t *)place, 1, __ATOMIC_RELAXED); }

/// eventfd(2) with EFD_CLOEXEC and EFD_NONBLOCK.
static inline int cfuse_event(void) { return eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK); }
