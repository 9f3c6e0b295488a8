import Base
import Control
import Glibc
import Server
import Storing

/// The server that follows one that was killed, or replaced by an upgrade: the mount helper starts it.
enum NextServer {
  /// Waits for it, until `deadline`. Throws `gone` if the mount has ended meanwhile.
  static func connect(_ mount: MountRecord, until deadline: Instant) throws(ControlFailure) -> ControlClient {
    while true {
      do throws(ControlFailure) {
        return try ControlClient.connect(store: mount.store, owner: mount.owner)
      } catch {
        guard isMounted(mount) else { throw ControlFailure(.gone, "the mount \(mount.mountpoint) has ended") }
        guard Instant.now < deadline, [.notRunning, .failed, .busy].contains(error.kind) else { throw error }
        usleep(200_000)
      }
    }
  }

  /// Whether the mount is still there, with a server or without.
  static func isMounted(_ mount: MountRecord) -> Bool {
    do throws(Errno) { return try MountTable.entry(at: mount.mountpoint)?.isMediafs ?? false } catch { return false }
  }
}
