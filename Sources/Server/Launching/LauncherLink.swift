import Base
import CSystem
import Glibc
import Manifest
import Reading

/// The server's end of the socket to its launcher (mount-helper/PROTOCOL.md, "The launcher").
///
/// Any thread may call ``tell(_:)``, which never waits. The others are for the main thread.
package final class LauncherLink: Sendable {
  private struct State {
    /// 0: not known.
    var process: pid_t = 0
    /// How many files in a row the socket did not take.
    var lost = 0
    var isEnding = false
  }

  /// How long the launcher of a new mount may take to say that it can run the program, in seconds: its file may be on
  /// a disk that does not answer.
  private static let patience: Int32 = 10

  private let socket: FileDescriptor
  private let state = Lock(State())
  private let ended = Signal()
  /// The resolvers that options define.
  private let defined = Lock<Set<String>>([])
  /// Who hears of resolvers.
  private let listener = Lock<(@Sendable (ResolverNews) -> Void)?>(nil)

  /// Takes ownership of the descriptor that the helper left open.
  package init(owning descriptor: Int32) {
    socket = FileDescriptor(owning: descriptor)
    _ = csystem_fcntl(descriptor, F_SETFD, FD_CLOEXEC)
  }

  /// The launcher of `request`, once it can run the program; nil for a mount without one. Where a mount only goes on,
  /// readers wait for nothing, and what is wrong is told in the log.
  static func begin(
    _ launcher: LauncherLink?, for request: MountRequest, goesOn: Bool
  ) throws(ServerError) -> LauncherLink? {
    if !request.needsLauncher { return nil }
    guard let launcher else {
      let why = "no program of --on and no resolver is started: the mount helper could not start the launcher"
      guard goesOn else { throw .failed(why) }
      Log.warning(why)
      return nil
    }
    launcher.defined.withLock { $0 = Set(request.resolvers.map(\.name)) }
    if !goesOn { try launcher.awaitReady() }
    _ = OwnedThread(name: "launcher") { launcher.listen() }
    return launcher
  }

  private func awaitReady() throws(ServerError) {
    let first: LauncherWords?
    do throws(Errno) {
      var event = pollfd(fd: socket.rawValue, events: Int16(POLLIN), revents: 0)
      guard try retrying({ poll(&event, 1, Self.patience * 1000) }) > 0 else { throw .timedOut }
      first = try receive()
    } catch {
      throw .failed("the launcher does not answer: \(error)")
    }
    guard let first else { throw .failed("the launcher has ended before the mount was ready") }
    if first.kind == .refused { throw .failed(first.words) }
    take(first)
  }

  /// Has the launcher start the program for a file. What the socket does not take is dropped: the launcher stands still
  /// then, as it takes whatever comes.
  func tell(_ file: CompletedFile) {
    guard let packet = LauncherOrder.complete(file).packet else {
      return Log.warning("\(file.path): no program is started for it: its URL and paths are too long")
    }
    if send(socket.rawValue, packet, packet.count, Int32(MSG_DONTWAIT | MSG_NOSIGNAL)) == packet.count {
      let lost = state.withLock { state in
        defer { state.lost = 0 }
        return state.lost
      }
      if lost > 0 { Log.warning("no program was started for \(lost) completed files: the launcher stood still") }
      return
    }
    let error = Errno.current
    let isFirst = state.withLock { state in
      state.lost += 1
      return state.lost == 1
    }
    if isFirst { Log.warning("\(file.path): no program is started for it, or for those after it: \(error)") }
  }

  /// Has the launcher end, and the programs with it. `waiting`: until it has ended.
  func end(waiting: Bool) {
    state.withLock { $0.isEnding = true }
    shutdown(socket.rawValue, Int32(SHUT_WR))
    if waiting, !ended.wait(seconds: Launcher.grace + Launcher.graceOfKilled + 1) {
      Log.warning("a program of --on cannot be killed, or its file does not answer: it is left behind")
    }
  }

  /// Logs what the launcher says, until it ends.
  private func listen() {
    do throws(Errno) {
      while let message = try receive() { take(message) }
    } catch {
      Log.warning("the launcher cannot be heard: \(error)")
    }
    let (process, isEnding) = state.withLock { ($0.process, $0.isEnding) }
    var status: Int32 = 0
    if process > 0 { waitpid(process, &status, 0) }
    if !isEnding {
      Log.warning("the launcher has ended: the next server of the mount has one again")
      told(.gone("the launcher has ended: run 'mediafs upgrade', or mount anew"))
    }
    ended.raise()
  }

  private func take(_ message: LauncherWords) {
    switch message.kind {
    case .ready: state.withLock { $0.process = pid_t(message.words) ?? 0 }
    case .refused, .warning: Log.warning(message.words)
    case .info: Log.info(message.words)
    case .debug: Log.debug(message.words)
    case .answer, .ended:
      guard let said = message.ofResolver else { return }
      if message.kind == .ended { return told(.ended(said.name, String(said.words))) }
      guard let answer = ResolverAnswer(line: said.words.utf8) else {
        end(said.name)
        return told(.ended(said.name, "it says what is no answer"))
      }
      told(.answered(said.name, answer))
    }
  }

  private func told(_ news: ResolverNews) { listener.withLock { $0 }?(news) }

  /// From now on, `listener` hears what resolvers say.
  func hear(_ listener: @escaping @Sendable (ResolverNews) -> Void) { self.listener.withLock { $0 = listener } }

  private func order(_ order: LauncherOrder) -> Bool {
    guard let packet = order.packet else { return false }
    return send(socket.rawValue, packet, packet.count, Int32(MSG_DONTWAIT | MSG_NOSIGNAL)) == packet.count
  }

  /// The next message; nil when the launcher has ended.
  private func receive() throws(Errno) -> LauncherWords? {
    var packet = [UInt8](repeating: 0, count: LauncherWords.limit)
    let count = try retrying { recv(socket.rawValue, &packet, packet.count, 0) }
    if count == 0 { return nil }
    guard let message = LauncherWords(packet: packet[..<count]) else { throw Errno(rawValue: EPROTO) }
    return message
  }
}

extension LauncherLink: LinkResolver {
  package func defines(_ name: String) -> Bool { defined.withLock { $0.contains(name) } }
  package func ask(_ ask: ResolverAsk, of name: String) -> Bool { order(.ask(name, line: ask.line)) }
  package func end(_ name: String) { _ = order(.end(name)) }
}
