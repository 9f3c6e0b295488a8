// The descriptors of a process or of a thread.
#pragma once
#include <stddef.h>

// Closes every descriptor above the standard ones but `kept`. Numbers below 0 do not count.
void close_all_but(const int *kept, size_t count);

// Gives the calling thread a table of descriptors of its own, with copies of `kept` alone: what it receives, no other
// thread's child inherits, and no other thread's close(2) waits for. Returns 0, or -1 with errno.
int own_descriptors(const int *kept, size_t count);

// Ends a connection of packets, and takes what the peer has sent. The kernel closes descriptors among it on this
// thread, and that may wait for whoever serves the file, or for the peer of a socket. Closing the socket then waits for
// nobody, whoever does it.
void empty_socket(int socket);
