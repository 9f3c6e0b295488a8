import Base
import Glibc
import Manifest
import Reading
import TestSupport
import Testing

@testable import Fetching
@testable import Sharing

/// A mount's member of a fleet on the test's own thread. What it asks of the store goes nowhere: the test answers it.
final class MemberBench {
  let member: FleetMember
  /// The files about which the member has something to say.
  private(set) var changed: [ResourceKey] = []

  fileprivate init(_ commands: TransferCommands) throws {
    let store = StoreSetup(try .test("http://127.0.0.1:1"), .test)
    let setup = FleetMember.Setup(store: store, key: FleetKey([1, 2, 3]), node: 5)
    member = FleetMember(setup, commands, wake: {})
    member.onChange = { [weak self] key in self?.changed.append(key) }
    _ = member.turn(now: .now)
    var format = FleetFormat()
    format.block = 64 << 10
    let object = StoredObject(body: format.bytes(key: setup.key))
    answer(.found(object)) { if case .format = $0 { true } else { false } }
  }

  static func key(_ number: Int64) -> ResourceKey { ResourceKey(high: 1, low: UInt64(number)) }

  /// A version with that number, of so many blocks.
  static func file(_ number: Int64, blocks: Int64 = 8) -> SecondFile {
    SecondFile(
      key: key(number), generation: number, etag: "\"\(number)\"", size: blocks << 16, modified: nil, mediaType: nil)
  }

  /// The store answers with that Date, in seconds since 1970.
  func hear(date: Int64) {
    var head = ResponseHead(body: .whole(length: nil), url: "")
    (head.date, head.object) = (date, ObjectAnswer())
    // The store's client numbers its transfers from there. The first one asks for `format`, and stays under way.
    let isHeard = member.store.transfer(TransferID(1 << 63), responded: head)
    #expect(isHeard)
  }

  /// What the member has asked for, in order.
  func pending(_ isMeant: (Asked) -> Bool) -> [StoreRequestID] {
    member.asked.filter { isMeant($0.value.what) }.keys.sorted { $0.rawValue < $1.rawValue }
  }

  /// The store answers the first request of that kind. False: there is none.
  @discardableResult func answer(_ outcome: StoreOutcome, _ isMeant: (Asked) -> Bool) -> Bool {
    guard let id = pending(isMeant).first else { return false }
    member.store(id, ended: outcome)
    return true
  }

  /// The lines with these words that are logged meanwhile. All tests that make a member are of one suite, which runs
  /// them one by one.
  func logged(_ words: String, _ body: () -> Void) throws -> [String] {
    try withTemporaryFolder { folder in
      let path = try folder.write("", to: "log")
      let file = try FileDescriptor.open(path, O_WRONLY | O_APPEND)
      Log.set(descriptor: file.rawValue, stamps: false)
      body()
      Log.set(descriptor: STDERR_FILENO, stamps: false)
      return text(of: path).split(separator: "\n").map(String.init).filter { $0.contains(words) }
    }
  }
}

/// A member that is ready, on a loop that makes no turn.
func withMember(_ body: (MemberBench) throws -> Void) throws {
  let core = try LoopCore(options: TransferOptions())
  core.waker.stop()
  var failure: (any Error)?
  core.run { commands in
    do {
      let bench = try MemberBench(commands)
      defer { bench.member.stop() }
      try body(bench)
    } catch {
      failure = error
    }
    return StoppedClient()
  }
  if let failure { throw failure }
}

/// The client of a loop that makes no turn.
private final class StoppedClient: TransferClient {
  func turn(now: Instant) -> Instant { .never }
  func transfer(_ id: TransferID, responded head: ResponseHead) -> Bool { false }
  func transfer(_ id: TransferID, received bytes: UnsafeRawBufferPointer) -> Bool { false }
  func transfer(_ id: TransferID, ended end: TransferEnd) {}
}
