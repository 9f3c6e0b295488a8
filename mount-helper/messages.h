// The messages of the server: PROTOCOL.md, "Messages".
#pragma once
#include "helper.h"

// Takes one message from the link, or its end.
void take_link(struct helper *helper);

// Takes all messages of a server that has ended.
void drain_link(struct helper *helper);
