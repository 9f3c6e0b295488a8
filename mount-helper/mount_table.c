#include "mount_table.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// Undoes the \ooo that the kernel writes for space, tab, newline and backslash (proc(5)); in place.
static void unescape(char *text) {
  char *to = text;
  for (char *from = text; *from; to++) {
    if (from[0] == '\\' && from[1] >= '0' && from[1] <= '3' && from[2] >= '0' && from[2] <= '7' && from[3] >= '0' &&
        from[3] <= '7') {
      *to = (char)((from[1] - '0') << 6 | (from[2] - '0') << 3 | (from[3] - '0'));
      from += 4;
    } else {
      *to = *from++;
    }
  }
  *to = 0;
}

uint32_t mounted_device(const char *path) {
  FILE *table = fopen("/proc/self/mountinfo", "re");
  if (!table) return 0;
  uint32_t device = 0;
  char *line = NULL;
  size_t space = 0;
  while (getline(&line, &space, table) > 0) {
    // id parent major:minor root mountpoint options [tags...] - type source options
    char *rest = line;
    char *field[5];
    int count = 0;
    while (count < 5 && (field[count] = strsep(&rest, " "))) count++;
    if (count < 5 || !rest) continue;
    unescape(field[4]);
    if (strcmp(field[4], path) != 0) continue;
    char *type = strstr(rest, " - ");
    unsigned major = 0, minor = 0;
    sscanf(field[2], "%u:%u", &major, &minor);
    // A later line lies over an earlier one.
    device = type && strncmp(type + 3, "fuse.mediafs ", 13) == 0 && major == 0 ? minor : 0;
  }
  free(line);
  fclose(table);
  return device;
}
