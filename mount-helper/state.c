#include "state.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

void tell_state(const struct settings *settings, const char *format, ...) {
  char text[2048];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  size_t length = 0;
  for (const char *word = strtok(text, " "); word; word = strtok(NULL, " ")) {
    const char *const shown = strchr(word, '/') ? "..." : word;
    for (size_t i = 0; shown[i] && length < settings->state_length; i++)
      settings->state[length++] = shown[i] >= '!' && shown[i] <= '~' ? shown[i] : '?';
    if (length < settings->state_length) settings->state[length++] = ' ';
  }
  memset(settings->state + length, ' ', settings->state_length - length);
}
