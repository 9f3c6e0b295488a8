#pragma once
#include <stdint.h>

// The time in milliseconds of CLOCK_MONOTONIC, which stands still while the machine sleeps.
int64_t milliseconds(void);
