import Base
import Fetching
import Manifest
import Reading
import TestSupport

/// A resolver that answers in the turn after the one that asks it, or never.
final class FakeResolver: LinkResolver, Sendable {
  private struct State {
    var asks: [ResolverAsk] = []
    var ends = 0
    var answers: @Sendable (ResolverAsk, Int) -> String? = { _, _ in nil }
    var tell: (@Sendable (ResolverNews) -> Void)?
    var isGone = false
  }
  private let state = Lock(State())

  /// `answers`: the fields of the answer to an ask and how many there were before; nil for none.
  init(_ answers: @escaping @Sendable (ResolverAsk, Int) -> String?) { state.withLock { $0.answers = answers } }

  var asks: [ResolverAsk] { state.withLock { $0.asks } }
  var reasons: [String] { asks.map(\.why.rawValue) }
  var ends: Int { state.withLock { $0.ends } }
  /// Whether nothing can be asked any more.
  var isGone: Bool {
    get { state.withLock { $0.isGone } }
    set { state.withLock { $0.isGone = newValue } }
  }

  func serve(_ system: MediaFileSystem) {
    state.withLock { $0.tell = { [unowned system] in system.heard($0) } }
    system.resolve(with: self)
  }

  func defines(_ name: String) -> Bool { name == "r" }

  func ask(_ ask: ResolverAsk, of name: String) -> Bool {
    if isGone { return false }
    let (fields, tell) = state.withLock { state in
      state.asks.append(ask)
      return (state.answers(ask, state.asks.count - 1), state.tell)
    }
    if let fields, let answer = ResolverAnswer(line: "{\"key\":\"\(ask.key.hex)\",\(fields)}".utf8) {
      tell?(.answered(name, answer))
    }
    return true
  }

  func end(_ name: String) { state.withLock { $0.ends += 1 } }
}
