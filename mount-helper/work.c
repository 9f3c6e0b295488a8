#include "work.h"

#include <linux/fuse.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "complain.h"
#include "session.h"

struct record {
  uint64_t answers;
  uint32_t id;
  uint32_t died;
  uint32_t request;
  uint32_t kind;
  uint64_t turn;
};

static const char *operation_name(uint32_t operation) {
  switch (operation) {
    case FUSE_LOOKUP: return "LOOKUP";
    case FUSE_FORGET: return "FORGET";
    case FUSE_GETATTR: return "GETATTR";
    case FUSE_OPEN: return "OPEN";
    case FUSE_READ: return "READ";
    case FUSE_STATFS: return "STATFS";
    case FUSE_RELEASE: return "RELEASE";
    case FUSE_GETXATTR: return "GETXATTR";
    case FUSE_LISTXATTR: return "LISTXATTR";
    case FUSE_OPENDIR: return "OPENDIR";
    case FUSE_READDIR: return "READDIR";
    case FUSE_RELEASEDIR: return "RELEASEDIR";
    case FUSE_INTERRUPT: return "INTERRUPT";
    case FUSE_BATCH_FORGET: return "BATCH_FORGET";
    case FUSE_READDIRPLUS: return "READDIRPLUS";
    default: return "request";
  }
}

// The request that a thread serves: in its own buffer, or where the last server had left it.
static bool read_request(int session, int index, const struct record *record, struct work *work) {
  struct {
    struct fuse_in_header header;
    struct fuse_read_in read;
  } request;
  uint32_t at = record->request;
  if (at == 0) at = SESSION_BUFFERS + (uint32_t)index * SESSION_BUFFER_SIZE;
  if (at < SESSION_BUFFERS || at > SESSION_HANDLES - sizeof request) return false;
  if (pread(session, &request, sizeof request, at) != sizeof request || request.header.len == 0) return false;
  work->turn = request.header.unique;
  const uint32_t operation = request.header.opcode;
  int length = snprintf(work->text, sizeof work->text, "%s (%u) of inode %llu", operation_name(operation), operation,
                        (unsigned long long)request.header.nodeid);
  if (operation == FUSE_READ && length > 0 && length < WORK_TEXT)
    snprintf(work->text + length, sizeof work->text - (size_t)length, ", %u bytes at %llu", request.read.size,
             (unsigned long long)request.read.offset);
  return true;
}

// In the order of ThreadRecord.Work in Sources/Base/ThreadRecord.swift.
static const char *const kinds[] = {"its work",         "messages",      "a commit", "making space", "its transfers",
                                    "what to ask next", "a whole file"};
static const char *const workers[] = {"transfers", "keeper", "finisher"};

bool read_work(int session, int index, struct work *work) {
  struct record record;
  const off_t at = SESSION_THREADS + (off_t)index * SESSION_THREAD_SIZE;
  if (pread(session, &record, sizeof record, at) != sizeof record || record.id == 0) return false;
  *work = (struct work){.id = record.id, .died = record.died};
  const int worker = index - SESSION_BUFFER_COUNT;
  if (worker < 0) {
    snprintf(work->thread, sizeof work->thread, "fuse-%d", index);
    return read_request(session, index, &record, work);
  }
  if (worker >= (int)(sizeof workers / sizeof *workers) || record.turn % 2 == 0) return false;
  snprintf(work->thread, sizeof work->thread, "%s", workers[worker]);
  work->turn = record.turn;
  const bool is_known = record.kind < sizeof kinds / sizeof *kinds;
  snprintf(work->text, sizeof work->text, "%s", kinds[is_known ? record.kind : 0]);
  return true;
}

void tell_work(int session) {
  for (int i = 0; i < WORK_THREADS; i++) {
    struct work work;
    if (!read_work(session, i, &work)) continue;
    complain("  thread %s (%u) was busy with %s%s", work.thread, work.id, work.text,
             work.died ? ", and raised the signal" : "");
  }
}
