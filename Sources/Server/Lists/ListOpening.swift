import Base
import CSystem
import Glibc
import Storing

/// The lists that the mount helper has had opened for a server that asked: that of a mount which root made for another
/// user, for a list that was replaced since it restricted itself (mount-helper/PROTOCOL.md, "The lists").
final class OpenedLists: Sendable {
  private struct State {
    /// How often the server has asked.
    var asked: UInt32 = 0
    /// Whether somebody waits for what comes.
    var isAwaited = false
    /// What came of the last time, and why not all of it.
    var files: [OwnedDescriptor] = []
    var refusal: String?
  }

  /// More than the helper's process may take, and a pause before it, in seconds.
  private static let patience = 15.0
  private let state = Lock(State())
  private let hasCome = Signal()

  /// Returns the number of a new request. What comes for an earlier one is dropped from now on.
  func begin() -> UInt32 {
    state.withLock { state in
      state = State(asked: state.asked &+ 1, isAwaited: true)
      return state.asked
    }
  }

  /// A list came, or the reason why it did not, for that request.
  func take(_ file: consuming FileDescriptor?, _ words: String, for number: UInt32) {
    var came: OwnedDescriptor?
    var refusal: String? = words
    if let file {
      do throws(Errno) { (came, refusal) = (try OwnedDescriptor(file), nil) } catch {
        refusal = "cannot take the list from the mount helper: \(error)"
      }
    }
    state.withLock { [came, refusal] state in
      guard state.isAwaited, number == state.asked else { return }
      if let came { state.files.append(came) } else { state.refusal = refusal }
    }
    hasCome.raise()
  }

  /// Waits for so many lists. What comes afterwards is closed: a file that is kept open has its space on the disk.
  func wait(_ count: Int) throws(StoreError) -> [OwnedDescriptor] {
    defer { state.withLock { $0 = State(asked: $0.asked) } }
    let end = Instant.now.adding(seconds: Self.patience)
    while true {
      let (files, refusal) = state.withLock { ($0.files, $0.refusal) }
      if let refusal { throw StoreError(kind: .invalid, message: refusal) }
      if files.count == count { return files }
      if hasCome.wait(seconds: max(0, end.seconds(since: .now))) { continue }
      throw StoreError(
        kind: .io(.timedOut),
        message: "the list was replaced, and the mount helper has not opened it for \(Int(Self.patience)) s: does its "
          + "disk answer?")
    }
  }
}

/// The process behind `mediafs open-lists`, which the mount helper starts with the rights of the mount's user: opens
/// the lists for the server, and sends them over the helper's end of the link.
package enum ListOpener {
  /// For how long it goes on afterwards, in seconds: the helper starts the next one only then.
  private static let pause: UInt32 = 1

  /// `options`: those of the server, in a file that the server cannot change. `number`: of the server's request.
  package static func run(helper: Int32, options: consuming FileDescriptor, number: UInt32) throws(ServerError) {
    // It ends with the helper also if its user stops it. The helper asked for that too, until this process took its own
    // group back.
    _ = csystem_set_death_signal(SIGKILL)  // fails only for a number that is no signal
    defer { sleep(pause) }  // also where it fails: a hostile server can make the sends fail
    Log.set(level: .error)  // what the server said of these places when it began is not said again
    let request = try MountRequest(reading: options)
    try send(request, HelperLink(owning: helper), number)
  }

  private static func send(_ request: MountRequest, _ server: HelperLink, _ number: UInt32) throws(ServerError) {
    do throws(ServerError) {
      let places = try ServerPlaces(request, goesOn: true)
      for list in request.fileLists { try server.sendList(number, try ManifestImport.openAnew(list, places)) }
    } catch .failed(let why) {
      try server.refuseLists(number, why)
    }
  }
}
