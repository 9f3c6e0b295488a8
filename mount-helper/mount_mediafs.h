#pragma once

// `mount.mediafs SOURCE TARGET [-sfnvrw] [-t TYPE] [-N NAMESPACE] [-o OPTIONS]`, as mount(8) calls it. The process
// becomes `mediafs mount`. Returns an exit status only if that fails.
int mount_mediafs(int argc, char **argv);
