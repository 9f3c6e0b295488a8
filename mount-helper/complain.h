// Messages of the helper: on stderr, which in the background is the server's log.
#pragma once

// Writes `mediafs: ` and the message to stderr, as one line.
__attribute__((format(printf, 1, 2))) void complain(const char *format, ...);

// From now on a thread of this process writes its messages, and the process waits for no file. The thread may wait for
// a program that holds a lock of the file: what it has no room for meanwhile is lost.
void complain_on_a_thread(void);

// From now on the process writes its messages itself. It waits a moment for the thread.
void complain_directly(void);
