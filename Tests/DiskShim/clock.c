// The clocks that the test moves.
#include "parts.h"

#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

int clock_gettime(clockid_t clock, struct timespec *now) {
  int result = (int)syscall(SYS_clock_gettime, clock, now);
  if (result != 0 || !control) return result;
  if (clock == CLOCK_REALTIME) now->tv_sec += __atomic_load_n(&control->clock_offset, __ATOMIC_SEQ_CST);
  if (clock == CLOCK_BOOTTIME) now->tv_sec += __atomic_load_n(&control->slept, __ATOMIC_SEQ_CST);
  return result;
}

time_t time(time_t *result) {
  struct timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  if (result) *result = now.tv_sec;
  return now.tv_sec;
}

int gettimeofday(struct timeval *restrict now, void *restrict zone) {
  (void)zone;
  struct timespec exact;
  clock_gettime(CLOCK_REALTIME, &exact);
  now->tv_sec = exact.tv_sec;
  now->tv_usec = exact.tv_nsec / 1000;
  return 0;
}
