#pragma once
#include <stdint.h>

// Raises the kernel's read-ahead of the mount with that device number (minor), which only root may do: reads of stored
// data then take fewer round trips to the server. Call it after the reply to INIT: the kernel then takes the smaller of
// its own value and the reply's, and it offered only its default.
void raise_read_ahead(uint32_t device);
