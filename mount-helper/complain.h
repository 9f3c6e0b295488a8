// Messages of the helper: on stderr, which in the background is the server's log.
#pragma once

// Writes `mediafs: ` and the message to stderr, as one line.
__attribute__((format(printf, 1, 2))) void complain(const char *format, ...);
