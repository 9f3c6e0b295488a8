// One server follows another: PROTOCOL.md, "The next server".
#pragma once
#include "helper.h"

// Starts the next server.
void start_next(struct helper *helper);

// A child has ended or was stopped. If it is the server, decides whether and when the next one starts.
void take_child(struct helper *helper);
