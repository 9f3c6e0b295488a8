import Base
import CSystem
import Glibc

/// The server's end of the link to its mount helper (mount-helper/PROTOCOL.md).
///
/// The order is ``receiveStart()``, ``prepared()``, ``receiveMount()``, ``ready(initRequest:)``, ``watch(onGone:)``: on
/// one thread. ``close()``, ``sendLog(_:)`` and ``unmountLazily()`` may be called on any.
package final class HelperLink: Sendable {
  /// What the helper asks for.
  package struct Start: ~Copyable, Sendable {
    /// The options.
    package let request: MountRequest
    /// What came on standard input, if that is the manifest: an unnamed file, to be read with pread(2).
    package let input: FileDescriptor?
    /// Whether the helper runs as another user than the server: root mounts for this user and waits for the server.
    package let rootWaits: Bool
  }

  /// A mount that waits to be served.
  package struct Mounted: ~Copyable, Sendable {
    /// /dev/fuse, mounted.
    package let device: FileDescriptor
    /// The mount's device number (minor; the major is 0): its name in /sys/class/bdi and /sys/fs/fuse/connections.
    package let deviceNumber: UInt32

    /// The device, for who serves it.
    consuming func takeDevice() -> FileDescriptor { device }
  }

  private struct State {
    var mountpoint = ""
    var deviceNumber: UInt32 = 0
    var isClosed = false
  }

  private let socket: FileDescriptor
  private let state = Lock(State())

  /// Takes over the descriptor that the helper left open.
  package init(owning descriptor: Int32) {
    socket = FileDescriptor(owning: descriptor)
    _ = csystem_fcntl(descriptor, F_SETFD, FD_CLOEXEC)
  }

  /// Waits for the options, the manifest from standard input if there is one, and START.
  package func receiveStart() throws(ServerError) -> Start {
    let options = try receive(.options)
    let version = options.value
    guard version == HelperMessage.version, let file = options.takeDescriptor() else {
      throw .protocolBroken("the mount helper speaks protocol \(version), mediafs \(HelperMessage.version)")
    }
    let request = try MountRequest(decoding: try Self.contents(of: file))
    let input = request.readsStandardInput ? try receive(.input).takeDescriptor() : nil
    _ = try receive(.start)
    state.withLock { $0.mountpoint = request.mountpoint }
    // The helper made the socket pair: its user is the peer. Each user waits for their own server only.
    let rootWaits = csystem_peer_uid(socket.rawValue) != Int64(geteuid())
    return Start(request: request, input: input, rootWaits: rootWaits)
  }

  /// Says that everything is ready to be mounted.
  package func prepared() throws(ServerError) { try send(.prepared, value: HelperMessage.version) }

  /// Waits for the mount.
  package func receiveMount() throws(ServerError) -> Mounted {
    let message = try receive(.mounted)
    let number = message.value
    guard let device = message.takeDescriptor() else { throw .protocolBroken("the mount came without its device") }
    state.withLock { $0.deviceNumber = number }
    return Mounted(device: device, deviceNumber: number)
  }

  /// Tells the helper that the mount answers: `mediafs mount` returns now. `initRequest` is the kernel's INIT request,
  /// as it was read. In the background the server takes its standard descriptors off the terminal first
  /// (``LogFile/takeOver()``).
  package func ready(initRequest: [UInt8]) throws(ServerError) {
    guard initRequest.count <= HelperMessage.payloadLimit else {
      throw .protocolBroken("the kernel's INIT request is longer than the protocol allows")
    }
    try send(.ready, payload: initRequest)
  }

  /// Gives the helper the log file to write its own messages to; again after each rotation.
  package func sendLog(_ descriptor: Int32) throws(ServerError) { try send(.log, descriptor: descriptor) }

  /// Starts a thread that calls `onGone` once, when the helper has ended before ``close()``: the mount is to be taken
  /// away (``unmountLazily()``) and the server to end.
  package func watch(onGone: @escaping @Sendable () -> Void) {
    _ = OwnedThread(name: "helper-link") { [self] in
      while true {
        do throws(ServerError) {
          // The helper has nothing more to say; what it says all the same is for a newer server.
          _ = try receiveAny()
        } catch {
          if !state.withLock({ $0.isClosed }) { onGone() }
          return
        }
      }
    }
  }

  /// Ends the link from this side: a receive that waits throws `.helperGone`, and `onGone` is not called any more.
  package func close() {
    state.withLock { $0.isClosed = true }
    shutdown(socket.rawValue, Int32(SHUT_RDWR))
  }

  /// How often a program is run to unmount before the mount is left behind, with a pause between: it may be killed, or
  /// not be started for want of memory or of a process.
  private static let unmountAttempts = 5

  /// Unmounts in the helper's place, also if the mount is busy. To be called while this process has /dev/fuse open and
  /// connected: only then is the device number surely this mount's.
  package func unmountLazily() throws(ServerError) {
    let (mountpoint, number) = state.withLock { ($0.mountpoint, $0.deviceNumber) }
    var why = ""
    for attempt in 1...Self.unmountAttempts {
      if attempt > 1 { usleep(200_000) }
      do throws(Errno) {
        // By its number: somebody may have renamed a folder of the mountpoint's path.
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
      "cannot unmount \(mountpoint): \(why); it stays as a dead mount until you run: fusermount3 -uz '\(mountpoint)'")
  }
}

extension HelperLink {
  private struct Received: ~Copyable {
    let type: UInt32
    let value: UInt32
    let descriptor: FileDescriptor?

    consuming func takeDescriptor() -> FileDescriptor? { descriptor }
  }

  private func receive(_ wanted: HelperMessage) throws(ServerError) -> Received {
    let message = try receiveAny()
    guard message.type == wanted.rawValue else {
      throw .protocolBroken("message \(message.type) came where \(wanted.rawValue) is due")
    }
    return message
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
    return Received(type: type, value: value, descriptor: file)
  }

  private func send(
    _ type: HelperMessage, value: UInt32 = 0, payload: [UInt8] = [], descriptor: Int32 = -1
  ) throws(ServerError) {
    var packet: [UInt8] = []
    withUnsafeBytes(of: (type.rawValue, value)) { packet += $0 }
    packet += payload
    do throws(Errno) {
      _ = try retrying { csystem_send_descriptor(socket.rawValue, packet, packet.count, descriptor) }
    } catch {
      throw error == Errno(rawValue: EPIPE) || error == Errno(rawValue: ECONNRESET)
        ? .helperGone : .protocolBroken("the link to the mount helper: \(error)")
    }
  }

  private static func contents(of file: borrowing FileDescriptor) throws(ServerError) -> [UInt8] {
    do throws(Errno) {
      let size = Int(try file.status().st_size)
      guard size <= MountRequest.limit else { throw .invalid }
      let buffer = UnsafeMutableRawBufferPointer.allocate(byteCount: size, alignment: 1)
      defer { buffer.deallocate() }
      return Array(buffer[..<(try file.readFully(at: 0, into: buffer))])
    } catch {
      throw .protocolBroken("the server's options cannot be read (\(error))")
    }
  }
}
