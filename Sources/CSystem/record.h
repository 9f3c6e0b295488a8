// What the parts of CSystem share.
#pragma once
#include "CSystem.h"

/// The calling thread's record, or NULL. A signal handler may read it: the variable is there from the thread's start.
extern __thread struct csystem_record *csystem_own_record
    __attribute__((tls_model("initial-exec"), visibility("hidden")));
