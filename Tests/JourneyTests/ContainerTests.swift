import Base
import Glibc
import TestSupport
import Testing

/// docs/SERVICE.md, "In a container": a mount namespace that gets the mounts below a folder of the host's (`rslave`),
/// as container programs make it. The host is a namespace too, so that nothing of the machine is changed.
@Suite struct ContainerTests {
  @Test(.enabled(if: TestUser.canSwitch)) func theMountGoesOnInAContainer() throws {
    try withJourney { journey in
      try withOrigin { origin in
        origin.add("/a.bin", size: 100_000)
        try journey.original("a.bin", size: 100_000)
        try journey.list(origin.url("/a.bin") + "\n")
        // Programs that an upgrade may replace.
        for name in ["mediafs", "mount-helper"] {
          try journey.succeed(["cp", try Programs.path(name), journey.folder.file(name)])
        }
        try journey.folder.write(script, to: "script")
        let output = try journey.succeed([
          "unshare", "--mount", "--propagation", "private", "bash", journey.folder.file("script"), journey.folder.path,
        ])
        #expect(
          output == """
            mounted: the same in the container
            the server was killed: the same in the container, also by an old handle
            upgraded: the same in the container, also by an old handle
            unmounted: gone in the container
            mounted again: the same in the container
            held: a namespace has it

            """)
      }
    }
  }
}

private let script = #"""
  set -euo pipefail
  # Not the mounts of the tests that run beside this one: their servers would go on.
  umount --all --lazy --no-canonicalize --types fuse.mediafs || true
  work=$1
  mkdir -p "$work/shared/media"
  mount --bind "$work/shared" "$work/shared"
  mount --make-shared "$work/shared"
  # What a container program does for --volume "$work/shared:$work/shared:rslave".
  unshare --mount --propagation unchanged sh -c '
    mount --make-rslave "$1"; echo ready >"$1.ready"; exec sleep 1000' sh "$work/shared" &
  container=$!
  trap 'kill $container 2>/dev/null; "$work/mediafs" unmount --lazy "$media" 2>/dev/null || true' EXIT
  media=$work/shared/media
  for _ in {1..600}; do [ -e "$work/shared.ready" ] && break; sleep 0.1; done
  inside() { nsenter --target "$container" --mount "$@"; }
  same() { inside cmp "$media/a.bin" "$work/originals/a.bin" && echo "$1: the same in the container$2"; }
  by_handle() {
    /usr/bin/python3 -c 'import os, sys; sys.stdout.buffer.write(os.pread(9, 1 << 20, 0))' | cmp - "$work/originals/a.bin"
  }
  do_mount() { "$work/mediafs" mount "$media" --manifest "$work/urls.txt" --store "$work/store"; }
  server() { awk -F= '$1 == "process" { print $2 }' "$work/store/lock"; }

  do_mount
  same mounted ""
  exec 9<"/proc/$container/root$media/a.bin"
  kill -KILL "$(server)"
  by_handle
  same "the server was killed" ", also by an old handle"
  for name in mediafs mount-helper; do cp "$work/$name" "$work/new"; mv "$work/new" "$work/$name"; done
  "$work/mediafs" upgrade "$media" >/dev/null
  by_handle
  same upgraded ", also by an old handle"
  exec 9<&-
  "$work/mediafs" unmount "$media"
  inside mountpoint -q "$media" || echo "unmounted: gone in the container"
  do_mount
  same "mounted again" ""
  # A namespace that gets no unmounts holds it.
  unshare --mount --propagation private sh -c 'echo ready >"$1.holds"; exec sleep 1000' sh "$work/shared" &
  holder=$!
  for _ in {1..600}; do [ -e "$work/shared.holds" ] && break; sleep 0.1; done
  "$work/mediafs" unmount "$media" 2>"$work/errors" || true
  grep -q "too: .*mnt:\[[0-9]*\], with sleep ($holder)" "$work/errors" && echo "held: a namespace has it" || cat "$work/errors"
  kill $holder
  """#
