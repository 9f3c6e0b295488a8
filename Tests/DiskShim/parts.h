// What the parts of the shim share. Hidden: none of it may stand in for a symbol of the program it is loaded into.
#pragma once
#define _GNU_SOURCE
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "DiskShim.h"

#pragma GCC visibility push(hidden)

// NULL outside the server: then everything goes straight through.
extern struct disk_control *control;
// A file that is read in place of the machine's boot id, or NULL.
extern const char *boot_file;

// Whether this process is a server.
bool is_server(void);

// The path below the store of an open file, or of `name` in an open folder; false when it lies elsewhere.
bool path_of(int folder, const char *name, char *path);
bool starts(const char *text, const char *with);
enum disk_kind kind_of_write(const char *path);
uint64_t inode_of(int file);

// Before an operation: an errno it is to fail with, or 0; `phase` becomes the one at which it kills, or -1.
int enter(enum disk_kind kind, int *phase);
void leave(enum disk_kind kind, int phase);

enum operation { WRITE = 1, SYNC, TRUNCATE, CREATE, RENAME, UNLINK, SYNC_FOLDER, MAKE_FOLDER, TIMES };

void open_record(const char *path);
bool is_recording(void);
// Operations are recorded in the order in which they are done, so those that are recorded wait for one another.
void begin_recording(void);
void end_recording(void);
void note(enum operation operation, const char *path, const char *second, uint64_t inode, int64_t offset,
          const void *data, size_t length);

// What was written to partial files and not synced since, while `loses_unsynced` is set.
void remember_unsynced(int file, int64_t offset, size_t length);
// After a sync: what was written before is safe, or lost.
void settle_unsynced(int file, bool is_lost);

#pragma GCC visibility pop
