import Base
import Manifest

/// What was fetched of a file, for whom, and from where, since the server began. Bytes that came twice count twice.
package struct FetchedBytes: Sendable, Equatable {
  /// For programs that read it.
  package private(set) var reader: Int64 = 0
  /// For programs that look at files, and listings.
  package private(set) var scan: Int64 = 0
  /// For nobody yet: its rest, or its beginning while the file before it was played.
  package private(set) var continuation: Int64 = 0
  /// By scheme, host and port, in the order of the first bytes.
  package private(set) var hosts: [(host: String, bytes: Int64)] = []

  package var isEmpty: Bool { hosts.isEmpty }

  /// `count` bytes came from a host.
  mutating func add(_ count: Int64, for audience: Audience, from host: String) {
    switch audience {
    case .reader: reader += count
    case .scan: scan += count
    case .continuation: continuation += count
    }
    if let index = hosts.firstIndex(where: { $0.host == host }) {
      hosts[index].bytes += count
    } else {
      hosts.append((host, count))
    }
  }

  package static func == (left: Self, right: Self) -> Bool {
    left.reader == right.reader && left.scan == right.scan && left.continuation == right.continuation
      && left.hosts.elementsEqual(right.hosts) { $0 == $1 }
  }
}

/// What was fetched of the files that are no longer in memory: of the last ones.
struct FetchTallies: Sendable {
  /// The most files; at this number, the older half is dropped.
  static let most = 1024

  private var tallies: [ResourceKey: (bytes: FetchedBytes, number: UInt64)] = [:]
  private var lastNumber: UInt64 = 0

  subscript(key: ResourceKey) -> FetchedBytes? { tallies[key]?.bytes }

  mutating func note(_ bytes: FetchedBytes, of key: ResourceKey) {
    if bytes.isEmpty { return }
    lastNumber += 1
    if tallies.count >= Self.most, tallies[key] == nil {
      let kept = tallies.sorted { $0.value.number > $1.value.number }.prefix(Self.most / 2)
      tallies = Dictionary(uniqueKeysWithValues: Array(kept))
    }
    tallies[key] = (bytes, lastNumber)
  }
}
