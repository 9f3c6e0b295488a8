#define _GNU_SOURCE
#include "record.h"

__thread struct csystem_record *csystem_own_record;

void csystem_begin_record(struct csystem_record *record) {
  record->request = 0;
  record->turn = 0;
  __atomic_store_n(&record->thread, (uint32_t)gettid(), __ATOMIC_RELEASE);
  csystem_own_record = record;
}

void csystem_end_record(void) {
  __atomic_store_n(&csystem_own_record->thread, 0, __ATOMIC_RELEASE);
  csystem_own_record = NULL;
}

void csystem_note_work(uint32_t kind) {
  struct csystem_record *const own = csystem_own_record;
  if (!own) return;
  const uint64_t turn = own->turn;
  own->kind = kind;
  // Odd while busy. The helper only compares it with what it saw before.
  __atomic_store_n(&own->turn, kind == 0 ? (turn | 1) + 1 : (turn + 2) | 1, __ATOMIC_RELEASE);
}
