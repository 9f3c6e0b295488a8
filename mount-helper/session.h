// The session memory: PROTOCOL.md, "The session memory". Sources/Mount/SessionLayout.swift declares the same numbers.
#pragma once
#include <stdbool.h>
#include <stdint.h>

enum {
  SESSION_VERSION = 4,
  SESSION_VERSION_AT = 8,
  SESSION_INIT_LENGTH = 12,
  SESSION_HANDLE_MARK = 20,  // how many handles were ever used
  SESSION_FIRST_ID = 24,     // 0 until the first server knows it
  SESSION_SUSPECTS = 1088,  // the requests in whose service threads died
  SESSION_SUSPECTS_SIZE = 256,
  SESSION_THREADS = 2048,  // where the threads' records begin
  SESSION_THREAD_DIED = 12,  // in a record: the signal that the thread raised itself; the next number: its request
  SESSION_THREAD_SIZE = 64,
  SESSION_BUFFERS = 4096,  // where the request buffers begin, one for each thread
  SESSION_BUFFER_COUNT = 16,
  SESSION_BUFFER_SIZE = 8192,
  SESSION_SLOTS = SESSION_BUFFERS + SESSION_BUFFER_COUNT * SESSION_BUFFER_SIZE,  // where the slots begin
  SESSION_SLOT_COUNT = 16384,
  SESSION_SLOT_SIZE = 128,
  SESSION_SLOT_REQUEST = 16,  // where a slot's request begins
  SESSION_HANDLES = SESSION_SLOTS + SESSION_SLOT_COUNT * SESSION_SLOT_SIZE,  // where the open handles begin
  SESSION_HANDLE_COUNT = 262144,
  SESSION_HANDLE_SIZE = 32,
  SESSION_SIZE = SESSION_HANDLES + SESSION_HANDLE_COUNT * SESSION_HANDLE_SIZE,
};

// Creates the memory: zeros, of a size that no process can change. Returns its descriptor, or -1 after a message.
int create_session(void);

// The version of the layout that the first server wrote; 0 if it did not.
uint32_t session_version(int session);

// Whether a server has answered the kernel's INIT: the next one goes on.
bool was_served(int session);

// How many requests the servers of the session have answered.
uint64_t count_answers(int session);

// What servers noted of the requests that killed them.
struct suspects {
  char bytes[SESSION_SUSPECTS_SIZE];
};

// Takes the suspects from the memory, also that of the last server's death, for a program that shares no fault with the
// one that died. Call it, and return_suspects(), only while no server runs.
void take_suspects(int session, struct suspects *suspects);

// Puts them back: the program that died goes on.
void return_suspects(int session, const struct suspects *suspects);

// Answers the requests that the last server had taken with an error. A request that killed it stays, without its
// number, for the next server to count. Call it only while no server runs.
void refuse_taken(int session, int device);

// Answers some of the requests on `device` that no server has read with an error. Call it only while no server has the
// device. Never waits. False if it cannot read them: a server had the kernel send longer ones.
bool refuse_unread(int session, int device);
