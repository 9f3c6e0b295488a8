import Base
import CSystem
import Glibc

/// Complete files that the kernel reads without the server: the helper registers them, as only root may
/// (mount-helper/PROTOCOL.md, "Complete files").
///
/// Any thread may call it. A thread waits for the helper, which answers from memory, for a tenth of a second at most,
/// and holds no lock meanwhile. Whichever thread finds an answer on the socket passes it to the one that waits for it.
final class BackingFiles: Sendable {
  /// The messages. `mount-helper/link.h` declares them for the helper.
  enum Message: UInt32 { case register = 32, unregister, registered }

  private static let patience = 0.1

  /// A thread that waits for an answer.
  private final class Waiter: Sendable {
    let answered: Event
    init() throws(Errno) { answered = try Event() }
  }

  private struct State {
    var lastNumber: UInt32 = 0
    var waiting: [UInt32: Waiter] = [:]
    var answers: [UInt32: Int32] = [:]
    /// What no thread waits for any more.
    var overdue: Set<UInt32> = []
  }

  /// Nil without a helper: then no file can be registered.
  private let socket: FileDescriptor?
  private let state = Lock(State())

  init(_ socket: consuming FileDescriptor?) {
    self.socket = socket
    // A send fails rather than waits for a helper that stands still.
    _ = csystem_fcntl(number, F_SETFL, O_NONBLOCK)
  }

  private var number: Int32 {
    switch socket {
    case .some(let socket): socket.rawValue
    case .none: -1
    }
  }

  /// The kernel's id for an open file, or a negated errno.
  func register(_ file: Int32) -> Int32 {
    receiveAnswers()
    let waiter: Waiter
    do throws(Errno) { waiter = try Waiter() } catch { return -error.rawValue }
    let mine: UInt32? = state.withLock { state in
      guard state.overdue.isEmpty else { return nil }  // the helper stands still: do not wait for it again
      state.lastNumber &+= 1
      state.waiting[state.lastNumber] = waiter
      return state.lastNumber
    }
    guard let mine else { return -ETIMEDOUT }
    let error = send(.register, mine, file)
    if error != 0 {
      state.withLock { $0.waiting[mine] = nil }
      return -error
    }
    return answer(to: mine, waiter)
  }

  private func answer(to mine: UInt32, _ waiter: Waiter) -> Int32 {
    let deadline = Instant.now.adding(seconds: Self.patience)
    while true {
      let left = max(deadline.seconds(since: .now), 0)
      var ready = [
        pollfd(fd: number, events: Int16(POLLIN), revents: 0),
        pollfd(fd: waiter.answered.rawValue, events: Int16(POLLIN), revents: 0),
      ]
      _ = poll(&ready, 2, Int32(left * 1000) + 1)
      receiveAnswers()
      let isOver = left == 0 || ready[0].revents & Int16(POLLHUP) != 0
      let answer: Int32? = state.withLock { state in
        let answer = state.answers.removeValue(forKey: mine)
        if answer == nil && !isOver { return nil }
        state.waiting[mine] = nil
        if answer == nil { state.overdue.insert(mine) }
        return answer ?? -ETIMEDOUT
      }
      if let answer { return answer }
    }
  }

  /// Takes what answers there are.
  private func receiveAnswers() {
    var packet: (type: UInt32, number: UInt32, result: Int32) = (0, 0, 0)
    var stray: Int32 = -1
    while csystem_receive_descriptor(number, &packet, 12, &stray) == 12 {
      if stray >= 0 { Glibc.close(stray) }
      guard packet.type == Message.registered.rawValue else { continue }
      let (answered, result) = (packet.number, packet.result)
      let (waiter, isLate): (Waiter?, Bool) = state.withLock { state in
        guard let waiter = state.waiting[answered] else { return (nil, state.overdue.remove(answered) != nil) }
        state.answers[answered] = result
        return (waiter, false)
      }
      waiter?.answered.signal()
      if isLate && result > 0 { close(result) }
    }
  }

  /// Forgets an id, for new opens: open handles go on with the file. If the helper does not get this, it closes the id
  /// when the next server begins.
  func close(_ id: Int32) {
    let error = send(.unregister, UInt32(bitPattern: id), -1)
    if error != 0 { Log.debug("the helper did not close the backing file \(id): \(Errno(rawValue: error))") }
  }

  /// Returns 0, or an errno.
  private func send(_ type: Message, _ value: UInt32, _ file: Int32) -> Int32 {
    var packet = (type.rawValue, value)
    while csystem_send_descriptor(number, &packet, 8, file) < 0 {
      if errno != EINTR { return errno }
    }
    return 0
  }
}
