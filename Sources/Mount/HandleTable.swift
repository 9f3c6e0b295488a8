import Base
import Reading

/// The open handles of the mount, one record each in the session memory, for the server that comes next.
///
/// A handle's number, which the kernel gives back with its RELEASE, is its place in the table and the low half of its
/// OPEN's number. So an OPEN or a RELEASE that two servers carry out, because the first one was killed before it noted
/// that it was done, counts once.
final class HandleTable: Sendable {
  private let memory: SessionMemory
  /// Where handles of requests are that the last server left, by the number of the OPEN. Most often there is none.
  private let left: [UInt64: Int]
  /// The lock guards the handles' records in the memory, too.
  private let vacant: Lock<[Int]>

  /// `pending`: the numbers of the requests that the last server left.
  init(_ memory: SessionMemory, pending: Set<UInt64>) {
    self.memory = memory
    var left: [UInt64: Int] = [:]
    var vacant: [Int] = []
    for index in 0..<memory.handleMark {
      if let record = memory.handleRecord(index) {
        if pending.contains(record.unique) { left[record.unique] = index }
      } else {
        vacant.append(index)
      }
    }
    self.left = left
    self.vacant = Lock(vacant)
  }

  /// Frees the places of handles that are not as a server noted them. How many there were.
  ///
  /// The kernel may have such a file open past the server, or not: another open of it then fails, and reads no wrong
  /// bytes.
  static func dropDamaged(in memory: SessionMemory) -> Int {
    (0..<memory.handleMark).count { index in
      guard memory.isTaken(handle: index), memory.handleRecord(index) == nil else { return false }
      memory.clearHandle(index)
      return true
    }
  }

  /// What the last server left open. Only for who begins to serve: later, handles come and go.
  static func leftOpen(in memory: SessionMemory) -> [OpenHandle] {
    (0..<memory.handleMark).compactMap { memory.handleRecord($0) }
  }

  /// The handle of an OPEN that the last server had decided on, but perhaps not answered.
  func known(_ unique: UInt64) -> (number: UInt64, record: OpenHandle)? {
    guard !left.isEmpty, let index = left[unique] else { return nil }
    return vacant.withLock { _ in
      guard let record = memory.handleRecord(index), record.unique == unique else { return nil }
      return (Self.number(index, unique), record)
    }
  }

  /// Notes a handle, before the reply that gives it to the kernel. Returns its number; nil if there are too many.
  func add(_ record: OpenHandle) -> UInt64? {
    vacant.withLock { vacant in
      let index = vacant.popLast() ?? memory.handleMark
      guard index < SessionLayout.handleCount else { return nil }
      if index == memory.handleMark { memory.raiseHandleMark(to: index + 1) }
      memory.keep(record, inHandle: index)
      return Self.number(index, record.unique)
    }
  }

  /// The kernel has closed a handle, or never got it. False if it is not there: then it was removed before.
  func remove(_ number: UInt64, of inode: Inode) -> Bool {
    let index = Int(number & 0xFFFF_FFFF)
    return vacant.withLock { vacant in
      guard index < memory.handleMark, let record = memory.handleRecord(index), record.inode == inode,
        Self.number(index, record.unique) == number
      else { return false }
      memory.clearHandle(index)
      vacant.append(index)
      return true
    }
  }

  private static func number(_ index: Int, _ unique: UInt64) -> UInt64 { unique << 32 | UInt64(index) }
}
