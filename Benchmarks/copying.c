/* The least that a FUSE server can do which copies: one file, read from a descriptor, answered from a buffer. What the
 * reads of stored bytes are compared with.
 *   cc -O2 -o copying copying.c $(pkg-config --cflags --libs fuse3)
 *   ./copying FILE MOUNTPOINT     shows MOUNTPOINT/film.mp4 until it is unmounted */
#define FUSE_USE_VERSION 314
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <fuse3/fuse_lowlevel.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static int backing;
static off_t size;

static void describe(fuse_ino_t inode, struct stat *status) {
  memset(status, 0, sizeof *status);
  status->st_ino = inode;
  status->st_mode = inode == FUSE_ROOT_ID ? S_IFDIR | 0555 : S_IFREG | 0444;
  status->st_nlink = 1;
  if (inode != FUSE_ROOT_ID) status->st_size = size;
}

static void initialise(void *data, struct fuse_conn_info *connection) {
  (void)data;
  connection->max_readahead = 1 << 20;
  connection->max_read = 131072;
  connection->max_background = 64;
  connection->congestion_threshold = 48;
}

static void look_up(fuse_req_t request, fuse_ino_t parent, const char *name) {
  struct fuse_entry_param entry = {.ino = 2, .attr_timeout = 3600, .entry_timeout = 3600};
  if (parent != FUSE_ROOT_ID || strcmp(name, "film.mp4") != 0) {
    fuse_reply_err(request, ENOENT);
    return;
  }
  describe(2, &entry.attr);
  fuse_reply_entry(request, &entry);
}

static void attributes(fuse_req_t request, fuse_ino_t inode, struct fuse_file_info *file) {
  (void)file;
  struct stat status;
  describe(inode, &status);
  fuse_reply_attr(request, &status, 3600);
}

static void open_file(fuse_req_t request, fuse_ino_t inode, struct fuse_file_info *file) {
  (void)inode;
  file->keep_cache = 1;
  fuse_reply_open(request, file);
}

static void read_file(fuse_req_t request, fuse_ino_t inode, size_t count, off_t offset, struct fuse_file_info *file) {
  (void)inode, (void)file;
  static __thread char *buffer;
  if (buffer == NULL) buffer = aligned_alloc(4096, 1 << 20);
  ssize_t got = pread(backing, buffer, count, offset);
  if (got < 0)
    fuse_reply_err(request, errno);
  else
    fuse_reply_buf(request, buffer, (size_t)got);
}

static const struct fuse_lowlevel_ops operations = {
    .init = initialise, .lookup = look_up, .getattr = attributes, .open = open_file, .read = read_file};

int main(int count, char **arguments) {
  if (count != 3) return 2;
  backing = open(arguments[1], O_RDONLY);
  if (backing < 0) return 1;
  size = lseek(backing, 0, SEEK_END);
  char *mount[] = {"copying", "-o", "ro,max_read=131072,default_permissions,fsname=copying", NULL};
  struct fuse_args options = FUSE_ARGS_INIT(3, mount);
  struct fuse_session *session = fuse_session_new(&options, &operations, sizeof operations, NULL);
  if (session == NULL || fuse_set_signal_handlers(session) != 0) return 1;
  if (fuse_session_mount(session, arguments[2]) != 0) return 1;
  struct fuse_loop_config *loop = fuse_loop_cfg_create();
  fuse_loop_cfg_set_clone_fd(loop, 0);
  int result = fuse_session_loop_mt(session, loop);
  fuse_loop_cfg_destroy(loop);
  fuse_session_unmount(session);
  fuse_session_destroy(session);
  return result;
}
