import Base
import Testing

import Reading

/// What a ticket was answered with.
enum Reply: Equatable {
  case data([UInt8])
  case attributes(Attributes)
  case opened(directIO: Bool)
  case error(Errno)
}

/// Collects answers; a second one to the same ticket is a failure of the test.
final class FakePort: ReplyPort, @unchecked Sendable {
  // @unchecked: behind `state`.
  private struct State {
    var replies: [Ticket: Reply] = [:]
    var invalidated: [String] = []
    var forgotten: [Inode: ByteRange] = [:]
    var answered = 0
  }
  private let state = Lock(State())
  private let trace: Trace?
  /// What a program does as soon as its stat is answered.
  let afterStat = Lock<(@Sendable () -> Void)?>(nil)
  /// Opens that the kernel does not want any more when they are answered.
  let unwanted = Lock<Set<Ticket>>([])

  init(_ trace: Trace? = nil) { self.trace = trace }

  var invalidated: [String] { state.withLock { $0.invalidated } }
  /// Whose pages the kernel was to forget, and which, the last time.
  var forgotten: [Inode: ByteRange] { state.withLock { $0.forgotten } }
  var answered: Int { state.withLock { $0.answered } }
  func reply(to ticket: Ticket) -> Reply? { state.withLock { $0.replies[ticket] } }
  func take(_ ticket: Ticket) -> Reply? { state.withLock { $0.replies.removeValue(forKey: ticket) } }

  func put(_ ticket: Ticket, _ reply: Reply) {
    trace?.replied(ticket, reply)
    let isSecond = state.withLock { state in
      defer { state.replies[ticket] = reply }
      state.answered += 1
      return state.replies[ticket] != nil
    }
    if isSecond { Issue.record("\(ticket) was answered twice, the second time with \(reply)") }
  }

  func reply(_ ticket: Ticket, data: UnsafeRawBufferPointer) { put(ticket, .data(Array(data))) }
  func reply(_ ticket: Ticket, attributes: Attributes) {
    put(ticket, .attributes(attributes))
    afterStat.withLock { $0 }?()
  }
  func reply(_ ticket: Ticket, opened mode: OpenMode, inode: Inode) -> Bool {
    if unwanted.withLock({ $0.contains(ticket) }) { return false }
    put(ticket, .opened(directIO: mode.directIO))
    return true
  }
  func reply(_ ticket: Ticket, error: Errno) { put(ticket, .error(error)) }
  func invalidate(parent: Inode, name: String, isChanged: Bool) {
    trace?.told("invalidate \(name)")
    state.withLock { $0.invalidated.append(name) }
  }
  func forgetPages(of inode: Inode, _ range: ByteRange) {
    trace?.told("forget pages of \(inode), \(range.start)..<\(range.end)")
    state.withLock { $0.forgotten[inode] = range }
  }
}
