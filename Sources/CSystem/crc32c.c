// CRC-32C (RFC 3720, appendix B.4): the processor's own instruction on x86-64, else eight tables.
#include "CSystem.h"

#include <string.h>

static uint32_t tables[8][256];
static pthread_once_t made = PTHREAD_ONCE_INIT;

static void make_tables(void) {
  for (uint32_t byte = 0; byte < 256; byte++) {
    uint32_t sum = byte;
    for (int bit = 0; bit < 8; bit++) sum = sum >> 1 ^ (sum & 1 ? 0x82f63b78 : 0);
    tables[0][byte] = sum;
  }
  for (int table = 1; table < 8; table++)
    for (int byte = 0; byte < 256; byte++) {
      const uint32_t before = tables[table - 1][byte];
      tables[table][byte] = before >> 8 ^ tables[0][before & 0xff];
    }
}

uint32_t csystem_crc32c_by_tables(uint32_t sum, const void *bytes, size_t count) {
  pthread_once(&made, make_tables);
  const uint8_t *next = bytes;
  sum = ~sum;
  for (; count >= 8; next += 8, count -= 8) {
    const uint32_t low = sum ^ (next[0] | next[1] << 8 | next[2] << 16 | (uint32_t)next[3] << 24);
    sum = tables[7][low & 0xff] ^ tables[6][low >> 8 & 0xff] ^ tables[5][low >> 16 & 0xff] ^ tables[4][low >> 24] ^
          tables[3][next[4]] ^ tables[2][next[5]] ^ tables[1][next[6]] ^ tables[0][next[7]];
  }
  while (count-- > 0) sum = sum >> 8 ^ tables[0][(sum ^ *next++) & 0xff];
  return ~sum;
}

#if defined(__x86_64__)
__attribute__((target("sse4.2"))) static uint32_t by_instruction(uint32_t sum, const uint8_t *next, size_t count) {
  uint64_t wide = ~sum;
  for (; count >= 8; next += 8, count -= 8) {
    uint64_t eight;
    memcpy(&eight, next, 8);
    wide = __builtin_ia32_crc32di(wide, eight);
  }
  sum = (uint32_t)wide;
  while (count-- > 0) sum = __builtin_ia32_crc32qi(sum, *next++);
  return ~sum;
}
#endif

uint32_t csystem_crc32c(uint32_t sum, const void *bytes, size_t count) {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("sse4.2")) return by_instruction(sum, bytes, count);
#endif
  return csystem_crc32c_by_tables(sum, bytes, count);
}
