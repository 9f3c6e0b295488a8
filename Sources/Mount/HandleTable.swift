import Base
import Reading

/// The open handles of the mount, one record each in the session memory, for the server that comes next.
///
/// A handle's number, which the kernel gives back with its RELEASE, is its place in the table and the low half of its
/// OPEN's number. So an OPEN or a RELEASE that two servers carry out, because the first one was killed before it noted
/// that it was done, counts once.
final class HandleTable: Sendable {
  private struct State {
    var vacant: [Int] = []
    /// Handles of requests that the last server left, by the number of the OPEN.
    var left: [UInt64: Int] = [:]
  }

  private let memory: SessionMemory
  private let state: Lock<State>
  /// What the last server left open.
  let leftOpen: [OpenHandle]

  /// `pending`: the numbers of the requests that the last server left.
  init(_ memory: SessionMemory, pending: Set<UInt64>) {
    self.memory = memory
    var state = State()
    var found: [OpenHandle] = []
    for index in 0..<memory.handleMark {
      if let record = memory.handleRecord(index) {
        found.append(record)
        if pending.contains(record.unique) { state.left[record.unique] = index }
      } else {
        state.vacant.append(index)
      }
    }
    leftOpen = found
    self.state = Lock(state)
  }

  /// The handle of an OPEN that the last server had decided on, but perhaps not answered.
  func known(_ unique: UInt64) -> (number: UInt64, record: OpenHandle)? {
    state.withLock { state in
      guard let index = state.left[unique], let record = memory.handleRecord(index), record.unique == unique else {
        return nil
      }
      return (Self.number(index, unique), record)
    }
  }

  /// Notes a handle, before the reply that gives it to the kernel. Returns its number; nil if there are too many.
  func add(_ record: OpenHandle) -> UInt64? {
    state.withLock { state in
      let index = state.vacant.popLast() ?? memory.handleMark
      guard index < SessionLayout.handleCount else { return nil }
      if index == memory.handleMark { memory.raiseHandleMark(to: index + 1) }
      memory.keep(record, inHandle: index)
      return Self.number(index, record.unique)
    }
  }

  /// The kernel has closed a handle, or never got it. False if it is not there: then it was removed before.
  func remove(_ number: UInt64, of inode: Inode) -> Bool {
    let index = Int(number & 0xFFFF_FFFF)
    return state.withLock { state in
      guard index < memory.handleMark, let record = memory.handleRecord(index), record.inode == inode,
        Self.number(index, record.unique) == number
      else { return false }
      memory.clearHandle(index)
      state.left[record.unique] = nil
      state.vacant.append(index)
      return true
    }
  }

  private static func number(_ index: Int, _ unique: UInt64) -> UInt64 { unique << 32 | UInt64(index) }
}
