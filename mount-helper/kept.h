// What a service manager keeps of a mount for the next helper: PROTOCOL.md, "Under a service manager".
#pragma once
#include <stdbool.h>

#include "mount.h"
#include "service.h"
#include "settings.h"

// Gives the manager what the next helper needs. Returns 0, or -1 after a message.
int keep_mount(const struct service *service, const struct settings *settings, const struct mount *mount, int session);

// The mount has ended: the manager keeps nothing more.
void forget_mount(const struct service *service);

enum adopted { NOTHING_KEPT, ADOPTED, UNUSABLE };

// Goes on with the mount that the manager kept, if it is the one that `settings` want: fills `mount` and `session`.
// Another one of mediafs ends, and then nothing is kept. UNUSABLE, after a message: what was kept is none of these.
enum adopted adopt_mount(const struct service *service, const struct settings *settings, struct kept kept,
                         struct mount *mount, int *session);
