// One side of the line: a network namespace with a TUN device.
#pragma once

struct side {
  // Of the namespace, which lasts as long as this descriptor or a process in it.
  int network;
  // What a process in the namespace sends is read here; what is written here, it receives.
  int tun;
};

// Makes a network namespace whose device has `address`, in 10.9.0.0/24, and whose TCP has this congestion control: NULL
// for the kernel's default. The calling thread is in that namespace afterwards. Ends the program where this fails.
struct side make_side(const char *address, const char *congestion_control);

// Says on standard error what could not be done, with errno, and ends with 1.
_Noreturn void fail(const char *what);
