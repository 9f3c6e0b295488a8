import Base
import Glibc

/// A systemd that runs as the first process of namespaces of its own, with the programs of this machine, no unit of its
/// distribution, and an /etc of its own. Only its processes see what it mounts, and it cannot change the kernel's
/// settings. Any thread may call. ``stop()`` must be called; ``withBootedSystem(_:_:)`` does.
package final class BootedSystem: Sendable {
  /// Whether this machine can have one; otherwise ``reason``.
  package static let isPossible: Bool = {
    guard geteuid() == 0, access("/lib/systemd/systemd", X_OK) == 0, access("/dev/fuse", F_OK) == 0 else {
      return false
    }
    do {
      return try Command.run([
        "unshare", "--mount", "--pid", "--uts", "--ipc", "--cgroup", "--fork", "sh", "-c",
        "findmnt -n -t cgroup2 && mount -t tmpfs none /mnt",
      ]).succeeded
    } catch { return false }
  }()
  /// Why a test of it is skipped.
  package static let reason = "This machine has no systemd, or no namespaces for us to boot it in."

  private let process: BackgroundProcess
  private let first: pid_t
  private let group: String

  /// Boots one. `folder` is there under the same path; its `etc` becomes the system's, its `log` has what systemd says.
  package init(in folder: TemporaryFolder) throws {
    process = try BackgroundProcess(["bash", "-c", bootScript, "boot", folder.path])
    guard process.waitForOutput("\n", timeout: 30) else {
      process.terminate(grace: 0)
      throw MountFailure(description: "no system boots: \(process.standardErrorSoFar)")
    }
    group = String(process.standardOutputSoFar.prefix { $0 != "\n" })
    let children = "/proc/\(process.processID)/task/\(process.processID)/children"
    var found: pid_t = 0
    // unshare's child is a shell at first.
    try waitUntil(timeout: 60, "the system to begin") {
      found = pid_t(text(of: children).filter { $0 != " " }) ?? 0
      return found > 0 && text(of: "/proc/\(found)/comm") == "systemd\n"
    }
    first = found
    try waitUntil(timeout: 120, interval: 0.05, "the system to run") {
      ["running\n", "degraded\n"].contains(try run(["systemctl", "is-system-running"]).output)
    }
  }

  /// What a command begins with that is to run inside.
  package var inside: [String] { ["nsenter", "--target=\(first)", "--all", "--root", "--wd=/proc/\(first)/root"] }

  /// Runs a program inside, to its end.
  @discardableResult
  package func run(_ arguments: [String], timeout: Double = 120) throws(CommandFailure) -> CommandResult {
    try Command.run(inside + arguments, timeout: timeout)
  }

  /// As ``run(_:timeout:)``; throws unless it ends with 0. Gives what it wrote.
  @discardableResult
  package func succeed(_ arguments: String...) throws(CommandFailure) -> String {
    let result = try run(arguments)
    if result.succeeded { return result.output }
    throw .failed(
      command: arguments.joined(separator: " "), status: result.status, errors: result.errors + result.output)
  }

  /// Ends all of its processes at once.
  package func stop() {
    // PID 1 of a namespace takes SIGKILL from outside alone, and takes all others with it.
    kill(first, SIGKILL)
    _ = process.wait(timeout: 30)
    process.terminate(grace: 0)
    do { _ = try Command.run(["find", group, "-depth", "-type", "d", "-exec", "rmdir", "{}", ";"]) } catch {
      Log.warning("\(error)")
    }
  }
}

/// Lends a system and takes it away afterwards.
package func withBootedSystem<Result>(
  _ prepare: (TemporaryFolder) throws -> Void, _ body: (BootedSystem, TemporaryFolder) throws -> Result
) throws -> Result {
  try withTemporaryFolder(open: true) { folder in
    for name in ["etc", "root"] { _ = try folder.makeFolder(name) }
    try prepare(folder)
    let system = try BootedSystem(in: folder)
    defer { system.stop() }
    return try body(system, folder)
  }
}

/// The distribution's own units are hidden: some set the kernel's parameters or load modules.
private let bootScript = #"""
  set -euo pipefail
  work=$1
  groups=$(findmnt -n -t cgroup2 -o TARGET | head -1)
  # What runs before left, if they were killed.
  for old in "$groups"/mediafs-test-*; do
    [ ! -d "$old" ] || [ -d "/proc/${old##*-}" ] || find "$old" -depth -type d -exec rmdir '{}' ';' 2>/dev/null || true
  done
  mkdir "$groups/mediafs-test-$$"
  echo $$ >"$groups/mediafs-test-$$/cgroup.procs"
  echo "$groups/mediafs-test-$$"
  prepare='
    set -e
    work=$1 root=$1/root
    mount --make-rprivate /
    # The namespace began with copies of the mounts of tests beside it, whose servers would go on until it ends. One that
    # goes meanwhile is none to unmount.
    umount --all --lazy --no-canonicalize --types fuse.mediafs,fuse || true
    mount -t tmpfs -o mode=755 tmpfs "$root"
    for folder in /*; do
      name=${folder#/}
      case $name in
        proc | sys | dev | run | tmp | etc | var | lost+found) ;;
        *) if [ -L "$folder" ]; then cp -a "$folder" "$root/$name"
           elif [ -d "$folder" ]; then mkdir "$root/$name"; mount --rbind "$folder" "$root/$name"; fi ;;
      esac
    done
    cd "$root"
    mkdir -p proc sys dev run tmp etc var/lib
    mount -t proc proc proc
    mount --bind proc/sys proc/sys
    mount -o remount,bind,ro proc/sys
    mount -t sysfs -o ro sysfs sys
    mount -t cgroup2 cgroup2 sys/fs/cgroup
    mount -t tmpfs -o mode=755 tmpfs run
    mount -t tmpfs -o mode=755 tmpfs dev
    mkdir dev/pts dev/shm
    for name in null zero full random urandom tty fuse; do touch dev/$name; mount --bind /dev/$name dev/$name; done
    ln -s /proc/self/fd dev/fd
    mkdir -p "$root$work"
    mount --bind "$work" "$root$work"
    for name in passwd group nsswitch.conf ld.so.cache ld.so.conf hosts host.conf fuse.conf; do
      [ ! -e /etc/$name ] || cp -a /etc/$name etc/
    done
    ln -s /proc/self/mounts etc/mtab
    echo 0123456789abcdef0123456789abcdef >etc/machine-id
    cp -a "$work/etc/." etc/
    for kind in system user; do
      mkdir "$work/units-$kind"
      for unit in basic sysinit shutdown network network-online nss-lookup remote-fs paths sockets timers exit final; do
        cp /usr/lib/systemd/$kind/$unit.target "$work/units-$kind/" 2>/dev/null || true
      done
      mount --bind "$work/units-$kind" usr/lib/systemd/$kind
    done
    mkdir -p etc/systemd/system
    printf "[Unit]\nDefaultDependencies=no\n" >etc/systemd/system/test.target
    exec chroot . /usr/bin/env -i container=other PATH=/usr/sbin:/usr/bin:/sbin:/bin /lib/systemd/systemd \
      --unit=test.target --log-target=console --show-status=0 >"$work/log" 2>&1
  '
  exec unshare --mount --pid --uts --ipc --cgroup --fork --kill-child sh -c "$prepare" sh "$work" </dev/null
  """#
