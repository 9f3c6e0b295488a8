#include "mount_table.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// Replaces, in place, the escapes \ooo that the kernel writes for space, tab, newline and backslash (proc(5)).
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

bool find_mount(uint64_t id, uint32_t device, char *path, size_t space) {
  FILE *table = fopen("/proc/self/mountinfo", "re");
  if (!table) return false;
  bool found = false;
  char *line = NULL;
  size_t length = 0;
  while (!found && getline(&line, &length, table) > 0) {
    // id parent major:minor root mountpoint options [tags...] - type source options
    char *rest = line;
    char *field[5];
    int count = 0;
    while (count < 5 && (field[count] = strsep(&rest, " "))) count++;
    if (count < 5 || !rest || strtoull(field[0], NULL, 10) != id) continue;
    const char *type = strstr(rest, " - ");
    unsigned major = 0, minor = 0;
    sscanf(field[2], "%u:%u", &major, &minor);
    unescape(field[4]);
    found = type && strncmp(type + 3, "fuse.mediafs ", 13) == 0 && major == 0 && minor == device &&
            (size_t)snprintf(path, space, "%s", field[4]) < space;
  }
  free(line);
  fclose(table);
  return found;
}
