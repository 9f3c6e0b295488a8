import Base
import Fetching

/// What the store answers.
extension FleetMember: ObjectStoreClient {
  package func store(_ id: StoreRequestID, received bytes: UnsafeRawBufferPointer, of object: StoredObject) -> Bool {
    readRequests[id].map { received(bytes, object, $0) } ?? false
  }

  package func store(_ id: StoreRequestID, ended outcome: StoreOutcome) {
    if let read = readRequests[id] { return end(read, outcome) }
    if start.probe?.owns(id) == true { return probed(outcome) }
    guard let question = asked.removeValue(forKey: id) else { return }
    let took = Instant.now.seconds(since: question.sent)
    if case .cancelled = outcome, store.isEnding { return }
    switch question.what {
    case .format(let sent): formatRead(outcome, sent)
    case .formatWrite: formatWritten(outcome)
    case .mark:
      heard(outcome, isTimed: false)
      start.listsNodesAt = .now
    case .nodes(let sent, let nodes): nodesListed(outcome, sent, nodes)
    case .probe, .removal: break
    case .seen(let id): useMarked(outcome, id)
    case .isBack: heard(outcome, after: took)
    case .list(let file, _): listed(outcome, file)
    case .readLease(let place): leaseRead(outcome, place, after: took)
    case .writeLease(let place):
      // Writers of one key queue: no answer in time says little of the store.
      heard(outcome, isTimed: false)
      tell(.leaseWritten(Self.written(outcome)), at: place)
    case .claim(let place, let block):
      heard(outcome, isTimed: false)
      tell(.claimed(block, Self.written(outcome)), at: place)
    case .facts(let key): factsRead(outcome, key, after: took)
    case .turn(let key, let facts): turnTaken(outcome, key, facts)
    case .pointer(let write): pointerRead(outcome, write)
    case .head(let write): headWritten(outcome, write, replacing: nil)
    case .headOfNext(let write, let etag): headWritten(outcome, write, replacing: etag)
    case .pointerWrite(let write): pointerWritten(outcome, write)
    case .upload(let job, let label): uploaded(outcome, job, label)
    case .probeSet(let file): probeRead(outcome, file)
    case .probeWrite(let job): probeWritten(outcome, job)
    case .compare(let job, let label): compared(outcome, job, label)
    case .digests(let file): digestsRead(outcome, file)
    case .digestsDue(let file): digestsSought(outcome, file)
    case .digestsWrite: heard(outcome, isTimed: false)
    }
  }

  private static func written(_ outcome: StoreOutcome) -> WriteResult {
    switch outcome {
    case .written(let etag): etag.map { .done(ObjectVersion(etag: $0)) } ?? .unknown
    // With If-Match, 404 is one too.
    case .conflict, .absent: .refused
    default: .unknown
    }
  }

  private func leaseRead(_ outcome: StoreOutcome, _ place: FleetNode.Place, after seconds: Double) {
    heard(outcome, after: seconds)
    switch outcome {
    case .absent: tell(.leaseRead(.absent), at: place)
    case .found(let object):
      guard let etag = object.etag else { return tell(.leaseRead(.failed), at: place) }
      do throws(ObjectRefusal) {
        let lease = try Lease(object.body)
        // A node that came since the list.
        if !fleet.nodes.contains(lease.node), !setup.isReadOnly { fleet.saw(nodes: fleet.nodes + [lease.node]) }
        tell(.leaseRead(.found(lease, ObjectVersion(etag: etag))), at: place)
      } catch {
        // Nobody replaces one of another version.
        if case .version = error { return tell(.leaseRead(.failed), at: place) }
        tell(.leaseRead(.found(Self.unreadable, ObjectVersion(etag: etag))), at: place)
      }
    case .rotten(let etag?, _): tell(.leaseRead(.found(Self.unreadable, ObjectVersion(etag: etag))), at: place)
    default: tell(.leaseRead(.failed), at: place)
    }
  }
  /// What stands for a lease that cannot be read. Nothing is known of it but its ETag: it is held for as long as that
  /// changes, and is taken in its place when that has stood for a lease's time. No process has this number.
  private static let unreadable = Lease(node: 0, boot: 0)

  private func listed(_ outcome: StoreOutcome, _ file: SharedFile) {
    heard(outcome, isTimed: false, isTrial: offers.listing == file.number)
    guard case .listed(let listing) = outcome else {
      file.isListing = false  // each block is looked at until it is asked for again
      if offers.listing == file.number { offered(isDone: false) }
      return
    }
    for entry in listing.entries {
      if let block = ObjectName.block(in: entry.key, of: file.id), block < file.blocks { file.inTier.insert(block) }
    }
    if let next = listing.continuation { return list(file, after: next) }
    (file.isListed, file.isListing) = (true, false)
    if !file.isClosed { change { $0.listed(file.generation, self.listed(file), into: &$1) } }
    if offers.listing == file.number {
      offers.listing = nil
      offer(file)
    } else {
      owe(file, .now)
    }
    changed(file)
  }
}
