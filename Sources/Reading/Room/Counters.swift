import Base
import Fetching
import Synchronization

/// Whom bytes are for.
package enum Audience: Int, Sendable, CaseIterable {
  /// A program that reads: what it waits for, and what it will ask for next.
  case reader
  /// A program that looks at many files (``ScanPrograms``), or a listing that asks for sizes.
  case scan
  /// Nobody yet: the rest of a file, or the beginning of the next one.
  case continuation
}

/// Where the bytes of a read come from.
package enum ReadSource: Int, Sendable, CaseIterable {
  /// The partial file, in which they were stored before the read.
  case store
  /// The complete copy.
  case copy
  /// Memory, because the store takes no bytes.
  case memory
  /// The origin: the read waited for them.
  case origin
  /// The store of the fleet: the read waited for them.
  case tier
}

/// Why a read failed.
package enum ReadError: Int, Sendable, CaseIterable {
  /// EIO.
  case failed
  /// EACCES: the origin denies access.
  case denied
  /// ETIMEDOUT.
  case timedOut
  /// ESTALE: the file has another version.
  case stale
  /// Any other error, also of a reader that was killed.
  case other
}

/// Why a request to an origin failed.
package enum RequestError: Int, Sendable, CaseIterable {
  case denied, permanent, transient, unusable, unsatisfiable
}

/// What the room counts for `mediafs metrics`, since this server began.
///
/// Any thread adds and reads. Each number is an atomic by itself, and no order holds between two of them. A read of
/// stored bytes costs two additions, and takes no lock for them.
final class Counters: Sendable {
  /// The upper bounds of the buckets of ``RoomMetrics/firstBytes``, in seconds; behind them is one without a bound.
  static let bounds: [Double] = [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30]

  /// A number that stands alone.
  enum Single: Int, CaseIterable {
    case duplicateBytes, stalledNanoseconds, firstByteNanoseconds, evictions, evictedBytes, completions, versions
    case sharedBytes
  }

  private let readBytes = InlineArray<10, Atomic<UInt64>> { _ in Atomic(0) }
  private let reads = InlineArray<10, Atomic<UInt64>> { _ in Atomic(0) }
  private let readErrors = InlineArray<5, Atomic<UInt64>> { _ in Atomic(0) }
  private let fetched = InlineArray<3, Atomic<UInt64>> { _ in Atomic(0) }
  private let requests = InlineArray<3, Atomic<UInt64>> { _ in Atomic(0) }
  private let requestErrors = InlineArray<5, Atomic<UInt64>> { _ in Atomic(0) }
  private let firstBytes = InlineArray<13, Atomic<UInt64>> { _ in Atomic(0) }
  private let singles = InlineArray<8, Atomic<UInt64>> { _ in Atomic(0) }
  private let inFlight = Atomic<Int>(0)

  /// A read got `count` bytes.
  func read(_ count: Int, from source: ReadSource, isScan: Bool) {
    let index = source.rawValue * 2 + (isScan ? 1 : 0)
    reads[index].add(1, ordering: .relaxed)
    readBytes[index].add(UInt64(count), ordering: .relaxed)
  }

  /// A read got an error.
  func readFailed(_ error: Errno) {
    let kind: ReadError =
      switch error {
      case .io: .failed
      case .accessDenied: .denied
      case .timedOut: .timedOut
      case .stale: .stale
      default: .other
      }
    readErrors[kind.rawValue].add(1, ordering: .relaxed)
  }

  /// A request to an origin began.
  func requested(for audience: Audience) {
    requests[audience.rawValue].add(1, ordering: .relaxed)
    inFlight.add(1, ordering: .relaxed)
  }

  /// A request is over.
  func requestEnded() { inFlight.subtract(1, ordering: .relaxed) }

  /// A request, or its answer, failed.
  func requestFailed(_ failure: TransferFailure) {
    let kind: RequestError =
      switch failure.kind {
      case .denied: .denied
      case .permanent: .permanent
      case .transient: .transient
      case .unusable: .unusable
      case .unsatisfiable: .unsatisfiable
      }
    requestErrors[kind.rawValue].add(1, ordering: .relaxed)
  }

  /// The first byte of an answer came `seconds` after its request.
  func responded(after seconds: Double) {
    let index = Self.bounds.firstIndex { seconds <= $0 } ?? Self.bounds.count
    firstBytes[index].add(1, ordering: .relaxed)
    add(UInt64(max(0, min(seconds, 1e6)) * 1e9), to: .firstByteNanoseconds)
  }

  /// `count` bytes of a body came.
  func received(_ count: Int, for audience: Audience) {
    fetched[audience.rawValue].add(UInt64(count), ordering: .relaxed)
  }

  func add(_ count: UInt64, to single: Single) { singles[single.rawValue].add(count, ordering: .relaxed) }

  private func value(_ single: Single) -> UInt64 { singles[single.rawValue].load(ordering: .relaxed) }

  /// What is counted now.
  func metrics() -> RoomMetrics {
    var metrics = RoomMetrics()
    for source in ReadSource.allCases {
      for audience in [Audience.reader, .scan] {
        let index = source.rawValue * 2 + (audience == .scan ? 1 : 0)
        metrics.reads.append(
          .init(
            source: source, audience: audience, count: reads[index].load(ordering: .relaxed),
            bytes: readBytes[index].load(ordering: .relaxed)))
      }
    }
    for error in ReadError.allCases {
      metrics.readErrors.append((error, readErrors[error.rawValue].load(ordering: .relaxed)))
    }
    for audience in Audience.allCases {
      metrics.requests.append(
        .init(
          audience: audience, count: requests[audience.rawValue].load(ordering: .relaxed),
          bytes: fetched[audience.rawValue].load(ordering: .relaxed)))
    }
    for error in RequestError.allCases {
      metrics.requestErrors.append((error, requestErrors[error.rawValue].load(ordering: .relaxed)))
    }
    for index in firstBytes.indices { metrics.firstBytes.append(firstBytes[index].load(ordering: .relaxed)) }
    metrics.firstByteSeconds = Double(value(.firstByteNanoseconds)) / 1e9
    metrics.duplicateBytes = value(.duplicateBytes)
    metrics.sharedBytes = value(.sharedBytes)
    metrics.stalledSeconds = Double(value(.stalledNanoseconds)) / 1e9
    metrics.evictions = value(.evictions)
    metrics.evictedBytes = value(.evictedBytes)
    metrics.completions = value(.completions)
    metrics.versions = value(.versions)
    metrics.inFlight = max(0, inFlight.load(ordering: .relaxed))
    return metrics
  }
}

/// What the room has counted since this server began, and what is so at the moment.
package struct RoomMetrics: Sendable {
  /// The reads that were answered with bytes.
  package struct Reads: Sendable {
    package var source: ReadSource
    /// Never ``Audience/continuation``.
    package var audience: Audience
    package var count: UInt64
    package var bytes: UInt64
  }

  /// The requests to origins.
  package struct Requests: Sendable {
    package var audience: Audience
    package var count: UInt64
    /// Bytes of bodies that came.
    package var bytes: UInt64
  }

  package var reads: [Reads] = []
  package var readErrors: [(kind: ReadError, count: UInt64)] = []
  package var requests: [Requests] = []
  package var requestErrors: [(kind: RequestError, count: UInt64)] = []
  /// How many answers began within each of ``firstByteBounds`` and not within the one before, and how many later.
  package var firstBytes: [UInt64] = []
  /// Seconds from requests to the first bytes of their answers, in all.
  package var firstByteSeconds = 0.0
  /// Bytes that came from an origin although they were stored.
  package var duplicateBytes: UInt64 = 0
  /// Bytes that came from the fleet's store.
  package var sharedBytes: UInt64 = 0
  /// Seconds in which a file had a read that waited, summed over the files.
  package var stalledSeconds = 0.0
  package var evictions: UInt64 = 0
  package var evictedBytes: UInt64 = 0
  /// Files that were completed and verified.
  package var completions: UInt64 = 0
  /// Files of which the origin had another version.
  package var versions: UInt64 = 0
  /// Requests to origins in flight.
  package var inFlight = 0
  /// Hosts that were asked, and how many of them did not answer the last request.
  package var hosts = 0
  package var silentHosts = 0
  /// Connections to them that are open, as far as that is known.
  package var connections = 0
  /// Files in memory.
  package var files = 0
  /// Handles that programs have open and that this server reads for.
  package var opens = 0
  /// Reads that wait for bytes.
  package var waitingReads = 0
  /// Stats and opens that wait for a file's length.
  package var waitingProbes = 0
  /// The most that the store may hold, in bytes; nil for no limit.
  package var limit: Int64?
  /// Whether the store takes everything that comes.
  package var hasSpace = true

  /// Upper bounds in seconds.
  package static var firstByteBounds: [Double] { Counters.bounds }
}

extension MediaFileSystem {
  /// What was counted, and what is so now. Any thread may ask; it takes no time to speak of.
  package func metrics() -> RoomMetrics {
    var metrics = room.counters.metrics()
    // Several inodes may share a content.
    let contents = room.table.withLock { table in
      Dictionary(table.contents.values.map { (ObjectIdentifier($0), $0) }, uniquingKeysWith: { first, _ in first })
    }
    metrics.files = contents.count
    for content in contents.values {
      content.guarded.withLock { guarded in
        metrics.opens += guarded.waiters.opens
        metrics.waitingReads += guarded.waiters.parkedReads.count
        metrics.waitingProbes += guarded.waiters.parkedProbes.count
      }
    }
    let now = room.clock.now
    for line in room.lines.busiest(.max, now: now) where line.host != Line.second {
      metrics.hosts += 1
      metrics.connections += line.connections(now: now)
      if line.retryAt != nil { metrics.silentHosts += 1 }
    }
    let limit = room.limits.withLock { $0.maximumSize }
    metrics.limit = limit == .max ? nil : limit
    metrics.hasSpace = room.health.intake == .everything
    return metrics
  }
}
