// The shim is loaded by the dynamic linker (LD_PRELOAD) and offers nothing to link against. What it shares with the
// tests is laid out here; Tests/CrashTests/DiskShim.swift has the same offsets.
#pragma once
#include <stdint.h>

/// What an operation is done to.
enum disk_kind {
  DISK_PARTIAL,   // a write to a partial file
  DISK_LOG,       // a write to the catalog's write-ahead log: part of a commit
  DISK_DATABASE,  // a write to the catalog itself (a checkpoint) or its rollback journal
  DISK_RENAME,
  DISK_SYNC,
  DISK_UNLINK,
  DISK_OTHER,     // any other write in the store
  DISK_READ,      // a read of a partial file or a copy
  DISK_KINDS
};

/// When an operation kills its process.
enum disk_phase { DISK_BEFORE, DISK_HALF, DISK_AFTER };

/// What becomes of a read of a partial file.
enum disk_fate { DISK_READS, DISK_HANGS, DISK_CRASHES, DISK_LOSES_PAGES };

/// A page of memory shared between the server and the test: it outlives the server.
struct disk_control {
  int64_t in_flight[DISK_KINDS];
  int64_t done[DISK_KINDS];
  int64_t kill_kind;       // -1: none
  int64_t kill_countdown;  // that many operations of the kind go by first
  int64_t kill_phase;
  int64_t killed;          // 1 once the shim killed the process
  int64_t error;           // an errno for operations of the kinds in `error_kinds`; 0: none
  int64_t error_kinds;     // a bit for each kind
  int64_t clock_offset;    // seconds added to CLOCK_REALTIME
  int64_t read_fate;       // what becomes of the next reads of partial files: enum disk_fate
  int64_t fated_reads;     // how many reads have that fate yet
  int64_t fated_offset;    // only those of this byte
  int64_t loses_unsynced;  // a sync that fails makes zeros of what was written to its partial file since the last one
  int64_t slept;           // seconds added to CLOCK_BOOTTIME: how long the machine slept
};
