#include "complain.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

void complain(const char *format, ...) {
  char line[1024] = "mediafs: ";
  const size_t prefix = strlen(line);
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(line + prefix, sizeof line - prefix - 1, format, arguments);
  va_end(arguments);
  strcat(line, "\n");
  ssize_t written = write(STDERR_FILENO, line, strlen(line));
  (void)written;  // if stderr is closed, no reader is left to tell
}
