#include "mount_table.h"

#include <limits.h>
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

// A line of the table.
struct entry {
  uint32_t device;  // the minor number, if the major one is 0; else 0, which no mount of mediafs has
  char type[32];
  char path[PATH_MAX];
};

static bool find_entry(uint64_t id, struct entry *entry) {
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
    entry->device = major == 0 ? minor : 0;
    found = type && sscanf(type + 3, "%31s", entry->type) == 1 &&
            (size_t)snprintf(entry->path, sizeof entry->path, "%s", field[4]) < sizeof entry->path;
  }
  free(line);
  fclose(table);
  return found;
}

bool find_mount(uint64_t id, uint32_t device, char *path, size_t space) {
  struct entry entry;
  return find_entry(id, &entry) && strcmp(entry.type, "fuse.mediafs") == 0 && entry.device == device &&
         (size_t)snprintf(path, space, "%s", entry.path) < space;
}

bool find_type(uint64_t id, char *type, size_t space) {
  struct entry entry;
  return find_entry(id, &entry) && (size_t)snprintf(type, space, "%s", entry.type) < space;
}
