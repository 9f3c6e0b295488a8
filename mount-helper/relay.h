// The caller's terminal stays the helper's own: whoever has a terminal open may read what is typed there, change its
// modes, and write what it obeys. The processes of another user get a pipe, and the helper writes what comes out of it.
#pragma once

// If the helper's standard output or error is a terminal: makes that pipe, and a thread that copies to stderr, with a ?
// in the place of each control character. A full pipe takes no more: the helper may be stopped (^Z), and its servers
// serve on. Returns 0, or -1 after a message.
int start_relay(void);

// In a child of the helper: its standard output and error are the pipe, if there is one.
void use_relay(void);

// The helper leaves the terminal, or ends. Returns once what those processes wrote is copied; if one of them keeps the
// pipe open, after two seconds.
void end_relay(void);
