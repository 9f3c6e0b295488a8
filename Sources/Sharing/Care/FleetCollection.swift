import Base
import Fetching

/// Removes what no node has used for some days. Nodes may go on meanwhile: what is removed too early is fetched again.
///
/// In order: pointers, so that nobody is led to what goes; leases and claims that are over; then of each generation the
/// digests, which say that all blocks are there, the probe set, the blocks, and the head last; at last the marks of old
/// days. Whatever of that was done when the command ends early is a state that nodes know.
package final class FleetCollection {
  package struct Result: Sendable, Encodable, Equatable {
    /// What is removed, or would be, by ``ObjectName/Kind``.
    package var removed: [String: FleetTally] = [:]
    /// The generations that are removed, and those that stay.
    package var generations: Int64 = 0
    package var kept: Int64 = 0
    /// Generations that a node began to use while they were being removed: their rest stays.
    package var spared: Int64 = 0
    /// The generations that nodes noted as used in these days.
    package var marked: Int64 = 0

    package var sum: FleetTally {
      removed.values.reduce(into: FleetTally()) { sum, tally in
        sum.objects += tally.objects
        sum.bytes = .clampedSum(sum.bytes, tally.bytes)
      }
    }
  }

  private let bucket: FleetBucket
  private let isDryRun: Bool
  private let progress: (Result) -> Void
  private let begun = Instant.now
  /// The first day, and the first second, of what stays.
  private let firstDay: Int
  private let firstSecond: Int64
  /// The generations that were used since: 16 bytes each, the only thing in memory that grows with the bucket.
  private var used: Set<FleetID> = []
  private var result = Result()

  /// - Parameter days: what was used in the last so many days stays; 1 or more.
  package init(_ bucket: FleetBucket, days: Int, isDryRun: Bool, progress: @escaping (Result) -> Void) {
    (self.bucket, self.isDryRun, self.progress) = (bucket, isDryRun, progress)
    let first = bucket.time - Int64(days) * 86_400
    (firstDay, firstSecond) = (StoreDay.number(of: first), first - first % 86_400)
  }

  package func run() throws(FleetCareError) -> Result {
    let old = try readMarks()
    try requireMarks()
    try removePointers()
    try removeOld("mfs1/l/")
    try removeOld("mfs1/e/")
    try removeGenerations()
    for day in old { try removeAll("mfs1/s/\(day)/") }
    for day in try days("mfs1/n/") where !isRecent(day) { try removeAll("mfs1/n/\(day)/") }
    try removeOld("mfs1/probe/")
    return result
  }

  /// Whether an object was written, or may have been, in the days that count.
  private func isRecent(_ entry: StoreListing.Entry) -> Bool { entry.modified.map { $0 >= firstSecond } ?? true }
  private func isRecent(_ day: String) -> Bool { Int(day).map { $0 >= firstDay } ?? true }

  // MARK: Marks

  /// The days below a prefix, as they are written there.
  private func days(_ prefix: String) throws(FleetCareError) -> [String] {
    var found: [String] = []
    try bucket.pages(prefix, isFlat: true) { page throws(FleetCareError) in
      for folder in page.folders {
        let day = folder.dropFirst(prefix.count).dropLast()
        if day.utf8.count == 8, Int(day) != nil { found.append(String(day)) }
      }
    }
    return found
  }

  /// Learns what was used; returns the days that are over.
  private func readMarks() throws(FleetCareError) -> [String] {
    let all = try days("mfs1/s/")
    for day in all where isRecent(day) {
      try bucket.pages("mfs1/s/\(day)/") { page throws(FleetCareError) in
        for entry in page.entries {
          if case .seen(_, let id)? = ObjectName(key: entry.key) { used.insert(id) }
        }
      }
    }
    result.marked = Int64(used.count)
    return all.filter { !isRecent($0) }
  }

  /// Where nodes were and none noted what it used, nothing tells what is not used.
  private func requireMarks() throws(FleetCareError) {
    guard used.isEmpty else { return }
    var nodes = false
    for day in try days("mfs1/n/") where isRecent(day) && !nodes {
      nodes = try !bucket.page("mfs1/n/\(day)/", from: nil, isFlat: false).entries.isEmpty
    }
    if nodes {
      throw FleetCareError(
        description:
          "\(bucket.place): machines were there in these days, and none noted which files it used (mfs1/s/): "
          + "nothing is removed, because all of it may be in use")
    }
  }

  /// Whether a node noted today or yesterday that it uses a generation: a command may run over midnight.
  private func isUsedNow(_ id: FleetID) throws(FleetCareError) -> Bool {
    let now = bucket.time + Int64(Instant.now.seconds(since: begun))
    for time in [now, now - 86_400] where StoreDay.number(of: time) >= firstDay {
      if try bucket.exists(.seen(day: StoreDay.number(of: time), id)) { return true }
    }
    return false
  }

  // MARK: Small objects

  private func removePointers() throws(FleetCareError) {
    try bucket.pages("mfs1/u/") { page throws(FleetCareError) in
      let old = page.entries.filter { !isRecent($0) && ObjectName.kind(of: $0.key) == .pointers }
      let unused = Lock<[StoreListing.Entry]>([])
      try bucket.each(old) { [bucket, used] entry throws(FleetCareError) in
        guard case .pointer(let id)? = ObjectName(key: entry.key), let object = try bucket.object(.pointer(id)),
          let pointer = try? Pointer(object.body),  // `check` tells of one that cannot be read
          !used.contains(pointer.generation)
        else { return }
        var entry = entry
        entry.etag = object.etag
        unused.withLock { $0.append(entry) }
      }
      // A node that heard from the origin meanwhile swapped it: then it has another ETag, and stays.
      try remove(unused.withLock { $0 }, onlyAsListed: true)
    }
  }

  /// Removes what nobody has written for these days.
  private func removeOld(_ prefix: String) throws(FleetCareError) {
    try bucket.pages(prefix) { page throws(FleetCareError) in
      try remove(page.entries.filter { !isRecent($0) }, onlyAsListed: true)
    }
  }

  private func removeAll(_ prefix: String) throws(FleetCareError) {
    try bucket.pages(prefix) { page throws(FleetCareError) in try remove(page.entries, onlyAsListed: false) }
  }

  /// Removes objects that mediafs knows, some at once.
  private func remove(_ entries: [StoreListing.Entry], onlyAsListed: Bool) throws(FleetCareError) {
    let known = entries.filter { ObjectName.kind(of: $0.key) != .foreign }
    let gone = Lock<[StoreListing.Entry]>([])
    if isDryRun {
      gone.withLock { $0 = known }
    } else {
      try bucket.each(known) { [bucket] entry throws(FleetCareError) in
        if try bucket.delete(entry.key, ifMatch: onlyAsListed ? entry.etag : nil) {
          gone.withLock { $0.append(entry) }
        }
      }
    }
    for entry in gone.withLock({ $0 }) {
      result.removed[ObjectName.kind(of: entry.key).rawValue, default: FleetTally()].add(entry)
    }
    progress(result)
  }

  // MARK: Generations

  private func removeGenerations() throws(FleetCareError) {
    var walk = GenerationWalk(bucket)
    while let found = try walk.next() {
      if try isInUse(found) { result.kept += 1 } else { try remove(found) }
      progress(result)
    }
  }

  private func isInUse(_ found: GenerationWalk.Found) throws(FleetCareError) -> Bool {
    if used.contains(found.id) || found.objects.contains(where: { isRecent($0) }) { return true }
    if try holdsRecent(ObjectName.blocks(of: found.id)) { return true }
    return try holdsRecent("mfs1/l/\(found.id)/")
  }

  /// Whether anything below the prefix was written in these days.
  private func holdsRecent(_ prefix: String) throws(FleetCareError) -> Bool {
    var isRecent = false
    var token: String?
    repeat {
      let page = try bucket.page(prefix, from: token, isFlat: false)
      isRecent = page.entries.contains { self.isRecent($0) }
      token = page.continuation
    } while token != nil && !isRecent
    return isRecent
  }

  private func remove(_ found: GenerationWalk.Found) throws(FleetCareError) {
    guard try !isUsedNow(found.id) else { return result.kept += 1 }
    func objects(_ kind: ObjectName.Kind) -> [StoreListing.Entry] {
      found.objects.filter { ObjectName.kind(of: $0.key) == kind }
    }
    // What is removed in one call goes in any order.
    try remove(objects(.done), onlyAsListed: false)
    try remove(objects(.probes), onlyAsListed: false)
    var token: String?
    var isFirst = true
    repeat {
      let page = try bucket.page(ObjectName.blocks(of: found.id), from: token, isFlat: false)
      if !isFirst, !isDryRun, try isUsedNow(found.id) { return result.spared += 1 }
      try remove(page.entries, onlyAsListed: false)
      token = page.continuation
      isFirst = false
    } while token != nil
    try remove(objects(.heads), onlyAsListed: false)
    result.generations += 1
  }
}

/// The generations of a bucket, ascending, a page at a time: those that have a block, a head, a probe set or digests.
struct GenerationWalk {
  struct Found {
    var id: FleetID
    /// Its head, probe set and digests.
    var objects: [StoreListing.Entry] = []
  }

  /// One kind of object: its list as far as it was read.
  private struct Part {
    let prefix: String
    /// Whether a generation is a folder there.
    let isFlat: Bool
    var waiting: ArraySlice<(id: FleetID, entry: StoreListing.Entry?)> = []
    var token: String?
    var isOver = false
  }

  private let bucket: FleetBucket
  private var parts = [
    Part(prefix: "mfs1/b/", isFlat: true), Part(prefix: "mfs1/d/", isFlat: false),
    Part(prefix: "mfs1/p/", isFlat: false), Part(prefix: "mfs1/g/", isFlat: false),
  ]

  init(_ bucket: FleetBucket) { self.bucket = bucket }

  mutating func next() throws(FleetCareError) -> Found? {
    for index in parts.indices { try fill(index) }
    guard let id = parts.compactMap({ $0.waiting.first?.id }).min(by: { ($0.high, $0.low) < ($1.high, $1.low) }) else {
      return nil
    }
    var found = Found(id: id)
    for index in parts.indices {
      while parts[index].waiting.first?.id == id {
        if let entry = parts[index].waiting.removeFirst().entry { found.objects.append(entry) }
      }
    }
    return found
  }

  private mutating func fill(_ index: Int) throws(FleetCareError) {
    while parts[index].waiting.isEmpty, !parts[index].isOver {
      let part = parts[index]
      let page = try bucket.page(part.prefix, from: part.token, isFlat: part.isFlat)
      let folders = page.folders.compactMap { name in
        FleetID(name.dropFirst(part.prefix.count).dropLast()).map { (id: $0, entry: StoreListing.Entry?.none) }
      }
      let entries = page.entries.compactMap { entry in
        FleetID(entry.key.dropFirst(part.prefix.count)).map { (id: $0, entry: Optional(entry)) }
      }
      parts[index].waiting = (part.isFlat ? folders : entries)[...]
      parts[index].token = page.continuation
      parts[index].isOver = page.continuation == nil
    }
  }
}
