#pragma once

// `mount.mediafs SOURCE TARGET [-sfnvrw] [-t TYPE] [-N NAMESPACE] [-o OPTIONS]`, as mount(8) calls it: becomes
// `mediafs mount`. Returns the exit status only when that cannot be.
int mount_mediafs(int argc, char **argv);
