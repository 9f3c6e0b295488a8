#pragma once
#include <malloc.h>
#include <sqlite3.h>

// Without sums over the memory in use, for which each allocation takes a lock of all threads. (Variadic, so Swift
// cannot call it.)
static inline int csqlite_count_no_memory(void) { return sqlite3_config(SQLITE_CONFIG_MEMSTATUS, 0); }

// SQLITE_TRANSIENT and SQLITE_STATIC are casts that Swift cannot import: by the first SQLite copies the bytes during
// the call, by the second ("lasting") they stay where they are until the statement has other values.
static inline int csqlite_bind_text(sqlite3_stmt *statement, int index, const char *bytes, int length) {
  return sqlite3_bind_text(statement, index, bytes, length, SQLITE_TRANSIENT);
}
static inline int csqlite_bind_lasting_text(sqlite3_stmt *statement, int index, const void *bytes, int length) {
  return sqlite3_bind_text(statement, index, (const char *)bytes, length, SQLITE_STATIC);
}
static inline int csqlite_bind_lasting_blob(sqlite3_stmt *statement, int index, const void *bytes, int length) {
  if (length == 0) return sqlite3_bind_zeroblob(statement, index, 0);
  return sqlite3_bind_blob(statement, index, bytes, length, SQLITE_STATIC);
}
static inline int csqlite_bind_blob(sqlite3_stmt *statement, int index, const void *bytes, int length) {
  // A null pointer would bind NULL, where an empty blob is meant.
  if (length == 0) return sqlite3_bind_zeroblob(statement, index, 0);
  return sqlite3_bind_blob(statement, index, bytes, length, SQLITE_TRANSIENT);
}
