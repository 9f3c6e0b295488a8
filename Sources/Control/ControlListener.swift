import Base
import CSystem
import Glibc

/// Serves the control socket `STORE/control`. One thread accepts connections, and each client gets a thread, up to a
/// limit.
///
/// The server that starts it holds the store's lock, so an existing socket belongs to a server that has ended.
///
/// One lock guards `State`. No code takes another lock or makes a system call while it holds that lock.
package final class ControlListener: Sendable {
  /// How long a client may take. Tests use shorter times.
  package struct Patience: Sendable {
    /// Seconds until a whole request has arrived, counted from the end of the one before.
    package var request = 15.0
    /// Seconds for a client to read one piece of an answer (at most 64 KiB and a message).
    package var reply = 15.0
    /// Seconds between two polls of a fetch's progress.
    package var report = 0.2

    /// The times of a real server.
    package init() {}
  }

  private struct State {
    var stopping = false
    var open: [Int: ControlSocket] = [:]
    var ended: [Int] = []
  }

  private let listening: FileDescriptor
  private let folder: FileDescriptor
  private let handler: any ControlHandler
  private let identity: ServerIdentity
  private let patience: Patience
  private let owner: uid_t
  private let state = Lock(State())
  private let thread = Lock<OwnedThread?>(nil)

  /// Creates the socket `store`/control (mode 0600) and serves at once. Throws `failed` if it cannot create the socket.
  package convenience init(
    store: String, identity: ServerIdentity, handler: any ControlHandler, patience: Patience = Patience()
  ) throws(ControlFailure) {
    try self.init(store: store, identity: identity, handler: handler, patience: patience, owner: geteuid())
  }

  /// `owner`: the user whose requests are served, besides root's.
  init(
    store: String, identity: ServerIdentity, handler: any ControlHandler, patience: Patience = Patience(), owner: uid_t
  ) throws(ControlFailure) {
    folder = try Self.openFolder(store)
    listening = try Self.listen(in: folder, store)
    self.handler = handler
    self.identity = identity
    self.patience = patience
    self.owner = owner
    let started = OwnedThread(name: "control") { [self] in acceptUntilStopped() }
    thread.withLock { $0 = started }
  }

  /// Stops serving: closes the socket and the connections, waits until every thread has ended, and removes the socket's
  /// file. A second call does nothing. A ``ControlHandler`` must not call it: its thread would wait for itself.
  package func stop() {
    guard let accepting = thread.withLock({ thread in thread.take() }) else { return }
    state.withLock { $0.stopping = true }
    _ = shutdown(listening.rawValue, Int32(SHUT_RDWR))  // wakes the thread from poll
    accepting.join()
    if unlinkat(folder.rawValue, controlSocketName, 0) != 0, Errno.current != .notFound {
      Log.warning("cannot remove the control socket: \(Errno.current)")
    }
  }

  private static func openFolder(_ store: String) throws(ControlFailure) -> FileDescriptor {
    do throws(Errno) {
      return try FileDescriptor.open(store, O_RDONLY | O_DIRECTORY)
    } catch {
      throw ControlFailure(.failed, "cannot open the store \(store): \(error)")
    }
  }

  private static func listen(
    in folder: borrowing FileDescriptor, _ store: String
  ) throws(ControlFailure) -> FileDescriptor {
    do throws(Errno) {
      let socket = FileDescriptor(owning: try retrying { Glibc.socket(AF_UNIX, Int32(SOCK_STREAM.rawValue), 0) })
      try makeNonblocking(socket.rawValue)
      if unlinkat(folder.rawValue, controlSocketName, 0) != 0, Errno.current != .notFound { throw Errno.current }
      // On Linux, bind(2) creates the file with the mode of the socket: other users cannot open it for a moment.
      _ = try retrying { fchmod(socket.rawValue, 0o600) }
      _ = try retrying { withControlAddress(in: folder) { bind(socket.rawValue, $0, $1) } }
      _ = try retrying { Glibc.listen(socket.rawValue, Int32(ControlLimits.clients)) }
      return socket
    } catch {
      throw ControlFailure(.failed, "cannot create the control socket \(store)/\(controlSocketName): \(error)")
    }
  }

  private func acceptUntilStopped() {
    var threads: [Int: OwnedThread] = [:]  // this thread's own
    var number = 0
    while !state.withLock({ $0.stopping }) {
      var entry = pollfd(fd: listening.rawValue, events: Int16(POLLIN), revents: 0)
      _ = poll(&entry, 1, -1)
      let accepted = accept(listening.rawValue, nil, nil)
      let error = Errno.current
      let ended = state.withLock { state in
        defer { state.ended = [] }
        return state.ended
      }
      for one in ended { threads.removeValue(forKey: one)?.join() }
      if accepted >= 0 {
        number += 1
        if let started = admit(FileDescriptor(owning: accepted), number) { threads[number] = started }
      } else if error.rawValue == EMFILE || error.rawValue == ENFILE || error == .noSpace {
        // The client waits in the backlog. Without a pause, this loop would spin until a descriptor is free.
        usleep(100_000)
      }
    }
    for socket in state.withLock({ Array($0.open.values) }) { socket.shutdown() }
    for one in threads.values { one.join() }
  }

  /// Starts a thread for a new connection, or rejects the connection.
  private func admit(_ descriptor: consuming FileDescriptor, _ number: Int) -> OwnedThread? {
    let socket: ControlSocket
    do throws(Errno) {
      socket = try ControlSocket(owning: descriptor)
    } catch {
      Log.warning("cannot serve a control connection: \(error)")
      return nil
    }
    guard let user = socket.peerUser, user == owner || user == 0 else {
      turnAway(socket, ControlFailure(.refused, "only the user who mounted this and root may use its server"))
      return nil
    }
    let admitted = state.withLock { state in
      guard !state.stopping, state.open.count < ControlLimits.clients else { return false }
      state.open[number] = socket
      return true
    }
    guard admitted else {
      turnAway(socket, ControlFailure(.busy, "the server has \(ControlLimits.clients) clients already: try again"))
      return nil
    }
    do throws(Errno) {
      return try OwnedThread(ifPossible: "control client") { [self] in
        var session = ControlSession(socket: socket, handler: handler, identity: identity, patience: patience)
        session.run()
        state.withLock { state in
          state.open[number] = nil
          state.ended.append(number)
        }
      }
    } catch {
      state.withLock { $0.open[number] = nil }
      turnAway(
        socket, ControlFailure(.busy, "the server cannot start a thread for a client: \(error); \(OwnedThread.advice)"))
      return nil
    }
  }

  /// Sends the reason and closes. The few bytes fit any send buffer, so this does not wait.
  private func turnAway(_ socket: ControlSocket, _ failure: ControlFailure) {
    Log.debug("control: rejected a connection: \(failure)")
    do throws(ControlFailure) {
      try socket.send(try encodeLine(ControlReply(failure)), until: .now)
    } catch {
      Log.debug("control: could not tell the client: \(error)")
    }
  }
}
