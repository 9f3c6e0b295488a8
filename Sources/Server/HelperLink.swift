import Base
import CSystem
import Control
import Glibc
import Storing

/// The server's end of the link to its mount helper (mount-helper/PROTOCOL.md).
///
/// One thread calls ``receiveStart()``, ``prepared(library:)``, ``receiveNotices()``, ``receiveBacking()``,
/// ``receiveWaking()``, ``receiveMount()``, ``ready()`` and ``watch(onGone:)``, in this order; then another one may
/// call ``openLists(_:)``. Any thread may call ``close()``, ``sendLog(_:)`` and ``unmountLazily()``.
package final class HelperLink: Sendable {
  /// What the helper asks the server to mount.
  package struct Start: ~Copyable, Sendable {
    /// The options of the mount.
    package let request: MountRequest
    /// The manifest from standard input, if there is one: an unnamed file, which the server reads with pread(2).
    package let input: FileDescriptor?
    /// The memory that the servers of the mount hand on.
    package let memory: FileDescriptor
    /// Whether the mount had a server before this one, which was killed.
    package let goesOn: Bool
    /// Why the mount's last upgrade failed; nil if it did not.
    package let failedUpgrade: String?
    /// The mount of the store's filesystem, as an earlier server of the mount had the helper hold it.
    package let held: StoreMount.Hold?
    /// Whether a service manager keeps the mount when the helper dies, and is to know how the server is.
    let isManaged: Bool
    /// Whether root mounts for the server's user, and waits until this server is ready.
    package let rootWaits: Bool

    /// Passes the memory on.
    consuming func takeMemory() -> FileDescriptor { memory }
  }

  /// A mount that waits to be served.
  package struct Mounted: ~Copyable, Sendable {
    /// The /dev/fuse of the mount.
    package let device: FileDescriptor
    /// The mount's device number (minor; the major is 0): its name in /sys/class/bdi and /sys/fs/fuse/connections.
    package let deviceNumber: UInt32

    /// Passes the device on.
    consuming func takeDevice() -> FileDescriptor { device }
  }

  private struct State {
    var mountpoint = ""
    var deviceNumber: UInt32 = 0
    var isClosed = false
    var opensLists = false
  }

  private let socket: FileDescriptor
  private let state = Lock(State())
  private let opened = OpenedLists()

  /// Takes ownership of the descriptor that the helper left open.
  package init(owning descriptor: Int32) {
    socket = FileDescriptor(owning: descriptor)
    _ = csystem_fcntl(descriptor, F_SETFD, FD_CLOEXEC)
  }

  /// Waits for OPTIONS, for INPUT if the manifest came on standard input, for SESSION and for START.
  package func receiveStart() throws(ServerError) -> Start {
    let options = try receive(.options)
    let version = options.value
    guard version == HelperMessage.version, let file = options.takeDescriptor() else {
      throw .protocolBroken("the mount helper speaks protocol \(version), mediafs \(HelperMessage.version)")
    }
    let request = try MountRequest(reading: file)
    let input = request.readsStandardInput ? try receive(.input).takeDescriptor() : nil
    let session = try receive(.session)
    let opensLists = session.value != 0
    guard let memory = session.takeDescriptor() else {
      throw .protocolBroken("the SESSION message has no descriptor")
    }
    var next = try receiveAny()
    let isManaged = next.type == HelperMessage.service.rawValue
    if isManaged { next = try receiveAny() }
    var kept: String?
    if next.type == HelperMessage.kept.rawValue {
      kept = next.text
      next = try receiveAny()
    }
    var held: StoreMount.Hold?
    if next.type == HelperMessage.held.rawValue {
      let name = next.number
      guard let folder = next.takeDescriptor() else { throw .protocolBroken("the HELD message has no descriptor") }
      held = StoreMount.Hold(name: name, folder: folder)
      next = try receiveAny()
    }
    let before = try next.checked(.start).value
    state.withLock { ($0.mountpoint, $0.opensLists) = (request.mountpoint, opensLists) }
    // The peer of a socket pair is the process that made it: the helper. It runs as another user only for `user=NAME`.
    let rootWaits = csystem_peer_uid(socket.rawValue) != Int64(geteuid())
    return Start(
      request: request, input: input, memory: memory, goesOn: before > 0, failedUpgrade: kept, held: held,
      isManaged: isManaged, rootWaits: rootWaits)
  }

  /// Has the helper hold the mount of the store's filesystem for the next servers, if something is to hold it. Before
  /// ``prepared(library:)``.
  package func hold(_ mount: StoreMount) throws(ServerError) {
    guard let hold = mount.hold else { return }
    try send(.hold, payload: withUnsafeBytes(of: hold.name) { Array($0) }, descriptor: hold.folder.rawValue)
  }

  /// Tells the helper to mount, and which folder the library is: it registers complete files of that filesystem only.
  package func prepared(library path: String) throws(ServerError) {
    let folder: FileDescriptor
    do throws(Errno) { folder = try FileDescriptor.open(path, O_RDONLY | O_DIRECTORY) } catch {
      throw .failed("cannot open the library \(path): \(error)")
    }
    try send(.prepared, value: HelperMessage.version, descriptor: folder.rawValue)
  }

  /// Waits for the socket to the helper's thread that writes notifications to the kernel.
  package func receiveNotices() throws(ServerError) -> FileDescriptor { try receiveSocket(.notices) }

  /// Waits for the socket to the helper's thread that registers complete files with the kernel.
  package func receiveBacking() throws(ServerError) -> FileDescriptor { try receiveSocket(.backing) }

  /// Waits for the socket to the helper's thread that has programs told that watch the mount.
  package func receiveWaking() throws(ServerError) -> FileDescriptor { try receiveSocket(.waking) }

  private func receiveSocket(_ message: HelperMessage) throws(ServerError) -> FileDescriptor {
    guard let socket = try receive(message).takeDescriptor() else {
      throw .protocolBroken("message \(message.rawValue) has no descriptor")
    }
    return socket
  }

  /// Waits for the mount.
  package func receiveMount() throws(ServerError) -> Mounted {
    let message = try receive(.mounted)
    let number = message.value
    guard let device = message.takeDescriptor() else { throw .protocolBroken("the MOUNTED message has no descriptor") }
    state.withLock { $0.deviceNumber = number }
    return Mounted(device: device, deviceNumber: number)
  }

  /// Tells the helper that the mount is ready, so that `mediafs mount` returns. In the background, the server first
  /// detaches its standard descriptors from the terminal (``LogFile/takeOver()``).
  package func ready() throws(ServerError) { try send(.ready) }

  /// Sends the helper the log file for its own messages.
  package func sendLog(_ descriptor: Int32) throws(ServerError) { try send(.log, descriptor: descriptor) }

  /// Tells the helper why this server cannot serve: if an upgrade fails with it, the user who asked is told.
  package func failed(_ why: String) throws(ServerError) { try send(.failed, payload: Array(why.utf8.prefix(1000))) }

  /// What a server tells of its list in ``sendState(_:_:)``.
  enum Reload: UInt32 {
    case same, begins, isOver
  }

  /// Tells the service manager, through the helper, how the server is: a line for people, empty for the last one.
  func sendState(_ text: String, _ reload: Reload) throws(ServerError) {
    try send(.state, value: reload.rawValue, payload: Array(text.utf8.prefix(500)))
  }

  /// Asks the helper for an upgrade to the program that is `file`. The answer comes to ``watch(onVerdict:onGone:)``.
  package func askForUpgrade(to file: ProgramFile) throws(ServerError) {
    var payload: [UInt8] = []
    withUnsafeBytes(of: (file.device, file.inode)) { payload += $0 }
    try send(.upgrade, payload: payload)
  }

  /// Has the helper open the lists that are files anew, of which there are `count`: in the order of the options. nil:
  /// the helper is of a version that does not.
  func openLists(_ count: Int) throws(StoreError) -> [OwnedDescriptor]? {
    guard state.withLock({ $0.opensLists }) else { return nil }
    let number = opened.begin()
    do throws(ServerError) { try send(.open, value: number) } catch {
      throw StoreError(kind: .io(.io), message: "\(error)")
    }
    return try opened.wait(count)
  }

  /// Sends a list to the server, in the helper's name, or the reason why there is none.
  func sendList(_ number: UInt32, _ list: borrowing FileDescriptor) throws(ServerError) {
    try send(.opened, value: number, descriptor: list.rawValue)
  }

  /// Tells the server why a list is not opened.
  func refuseLists(_ number: UInt32, _ why: String) throws(ServerError) {
    try send(.opened, value: number, payload: Array(why.utf8.prefix(1000)))
  }

  /// Starts a thread that calls `onVerdict` with each answer to ``askForUpgrade(to:)`` (nil: the helper agrees; else
  /// why it refuses), and `onGone` once if the helper ends before ``close()``. The server must then unmount
  /// (``unmountLazily()``) and exit.
  package func watch(
    onVerdict: @escaping @Sendable (String?) -> Void, onGone: @escaping @Sendable () -> Void
  ) {
    _ = OwnedThread(name: "helper-link") { [self] in
      while true {
        do throws(ServerError) {
          // A helper of this version sends nothing else.
          let message = try receiveAny()
          let (type, value, text) = (message.type, message.value, message.text)
          if type == HelperMessage.verdict.rawValue { onVerdict(value == 0 ? nil : text) }
          if type == HelperMessage.opened.rawValue { opened.take(message.takeDescriptor(), text, for: value) }
        } catch {
          if !state.withLock({ $0.isClosed }) { onGone() }
          return
        }
      }
    }
  }

  /// Ends the link: a waiting receive throws `.helperGone`, and `onGone` is no longer called.
  package func close() {
    state.withLock { $0.isClosed = true }
    shutdown(socket.rawValue, Int32(SHUT_RDWR))
  }

  /// How often the server tries to unmount before it gives up. The program that unmounts may be killed, or may not
  /// start because memory or processes run out.
  private static let unmountAttempts = 5

  /// Unmounts for a helper that is gone, also if the mount is busy. The process must still have /dev/fuse open and
  /// connected: only then does the device number surely belong to this mount.
  package func unmountLazily() throws(ServerError) {
    let (mountpoint, number) = state.withLock { ($0.mountpoint, $0.deviceNumber) }
    var why = ""
    for attempt in 1...Self.unmountAttempts {
      if attempt > 1 { usleep(200_000) }
      do throws(Errno) {
        // By its number, because a process may have renamed a folder of the mountpoint's path.
        let table = try MountTable.read()
        guard number != 0, let own = table.first(where: { $0.isMediafs && $0.device == number }) else { return }
        do throws(SystemCalls.UnmountFailure) { return try SystemCalls.unmount(own, lazily: true) } catch {
          why = error.description
        }
      } catch {
        why = error.description
      }
    }
    throw .failed(
      "cannot unmount \(mountpoint): \(why); it stays as a dead mount until you run: mediafs unmount --lazy '\(mountpoint)'"
    )
  }
}

extension HelperLink {
  private struct Received: ~Copyable {
    let type: UInt32
    let value: UInt32
    /// The payload, if it is words.
    let text: String
    /// The payload, if it is a number.
    let number: UInt64
    let descriptor: FileDescriptor?

    consuming func takeDescriptor() -> FileDescriptor? { descriptor }

    /// Itself, if it is of that type.
    consuming func checked(_ wanted: HelperMessage) throws(ServerError) -> Received {
      let type = type
      if type == wanted.rawValue { return self }
      throw .protocolBroken("message \(type) arrived instead of \(wanted.rawValue)")
    }
  }

  private func receive(_ wanted: HelperMessage) throws(ServerError) -> Received {
    try receiveAny().checked(wanted)
  }

  private func receiveAny() throws(ServerError) -> Received {
    var packet = [UInt8](repeating: 0, count: HelperMessage.headerLength + HelperMessage.payloadLimit)
    var descriptor: Int32 = -1
    let count: Int
    do throws(Errno) {
      count = try retrying { csystem_receive_descriptor(socket.rawValue, &packet, packet.count, &descriptor) }
    } catch {
      throw error == Errno(rawValue: ECONNRESET)
        ? .helperGone : .protocolBroken("the link to the mount helper: \(error)")
    }
    let file = descriptor >= 0 ? FileDescriptor(owning: descriptor) : nil
    if count == 0 { throw .helperGone }
    guard count >= HelperMessage.headerLength else { throw .protocolBroken("a message is too short") }
    let (type, value) = packet.withUnsafeBytes {
      ($0.loadUnaligned(as: UInt32.self), $0.loadUnaligned(fromByteOffset: 4, as: UInt32.self))
    }
    let text = String(decoding: packet[HelperMessage.headerLength..<count], as: UTF8.self)
    var number: UInt64 = 0
    withUnsafeMutableBytes(of: &number) { $0.copyBytes(from: packet[HelperMessage.headerLength..<count].prefix(8)) }
    return Received(type: type, value: value, text: text, number: number, descriptor: file)
  }

  /// Only the helper's end does not wait, which the process has that opens lists. The helper sends by it as well: that
  /// there is room again does not mean that a message fits. To `retrying`, the wait is an interrupted call.
  private func awaitRoom() {
    var event = pollfd(fd: socket.rawValue, events: Int16(POLLOUT), revents: 0)
    _ = poll(&event, 1, -1)
    errno = EINTR
  }

  private func send(
    _ type: HelperMessage, value: UInt32 = 0, payload: [UInt8] = [], descriptor: Int32 = -1
  ) throws(ServerError) {
    var packet: [UInt8] = []
    withUnsafeBytes(of: (type.rawValue, value)) { packet += $0 }
    packet += payload
    do throws(Errno) {
      _ = try retrying {
        let count = csystem_send_descriptor(socket.rawValue, packet, packet.count, descriptor)
        if count < 0, errno == EAGAIN { awaitRoom() }
        return count
      }
    } catch {
      throw error == Errno(rawValue: EPIPE) || error == Errno(rawValue: ECONNRESET)
        ? .helperGone : .protocolBroken("the link to the mount helper: \(error)")
    }
  }
}
