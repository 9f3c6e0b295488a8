import Base
import CCrypto
import Fetching
import Glibc
import Reading

/// A block that goes up.
struct UploadJob: Sendable {
  /// The file by the catalog's number and by its id.
  let number: Int64, id: FleetID
  let block: Int
  let range: ByteRange
  let piece: Int
  let place: FleetNode.Place
  /// ``SharedFile/epoch`` when it was asked for.
  let epoch: Int
  let served: ServedFile
  let isOwed: Bool
  let startsAt: Instant
}

/// A block's body, with what its metadata say of it.
struct PreparedUpload: Sendable {
  let job: UploadJob
  /// nil: its bytes cannot be read any more, or are not the origin's.
  let body: StoreBody?
  let pieces: String

  /// Reads and digests the bytes: on a thread that nobody waits for.
  init(_ job: UploadJob, for location: StoreLocation) {
    self.job = job
    var isThere = false
    let bytes = TransferBody(count: Int(job.range.count)) { (memory: UnsafeMutableRawBufferPointer) throws(Never) in
      isThere = job.served.fill(memory, at: job.range.start)
      if !isThere { memory.initializeMemory(as: UInt8.self, repeating: 0) }
    }
    // What was evicted meanwhile reads as zeros, and is a hole.
    let hole = storing_seek_hole(job.served.number, job.range.start)
    guard isThere, hole >= job.range.end, job.served.isAsOpened else {
      (body, pieces) = (nil, "")
      return
    }
    body = StoreBody(bytes, for: location)
    pieces = PieceSums(bytes.bytes, piece: job.piece).text
  }
}

/// The uploads that wait: in order, two at a time, within a budget. Only their place in the store waits, not their
/// bytes.
final class FleetUploads {
  /// The most bytes that wait or go up.
  static let limit: Int64 = 256 << 20
  /// How many bodies are in memory at once.
  static let mostAtOnce = 2

  private enum Order: Sendable {
    case prepare(UploadJob), prepareProbe(ProbeJob), stop
  }

  private let orders: Mailbox<Order>
  private let thread: OwnedThread
  private let prepared: Mailbox<PreparedUpload>
  private let probes: Mailbox<PreparedProbe>
  private var waiting: [UploadJob] = []
  private(set) var underWay = 0
  var budget: UploadBudget

  init(rate: Int64?, location: StoreLocation, key: FleetKey, wake: @escaping @Sendable () -> Void) {
    budget = UploadBudget(limit: Self.limit, rate: rate)
    let signal = Signal()
    let orders = Mailbox<Order> { signal.raise() }
    let prepared = Mailbox<PreparedUpload>(wake: wake)
    let probes = Mailbox<PreparedProbe>(wake: wake)
    (self.orders, self.prepared, self.probes) = (orders, prepared, probes)
    thread = OwnedThread(name: "share") {
      while true {
        signal.wait()
        while let order = orders.takeFirst() {
          switch order {
          case .prepare(let job): prepared.post(PreparedUpload(job, for: location))
          case .prepareProbe(let job): probes.post(PreparedProbe(job, key, for: location))
          case .stop: return
          }
        }
      }
    }
  }

  /// Ends the thread.
  func stop() {
    orders.post(.stop)
    thread.join()
  }

  func add(_ job: UploadJob) { waiting.append(job) }

  /// Has those prepared whose turn has come. Returns when the next one may begin.
  func startNext(_ now: Instant) -> Instant {
    while underWay < Self.mostAtOnce, let next = waiting.first, next.startsAt <= now {
      waiting.removeFirst()
      underWay += 1
      orders.post(.prepare(next))
    }
    return underWay < Self.mostAtOnce ? waiting.first?.startsAt ?? .never : .never
  }

  func takePrepared() -> [PreparedUpload] { prepared.takeAll() }

  /// Notes a probe set. False: too many wait.
  func add(_ probe: ProbeJob) -> Bool {
    guard probesWaiting.count < Self.mostProbes else { return false }
    probesWaiting.append(probe)
    return true
  }
  /// The most probe sets that wait, each with a descriptor, of which they may have a quarter: a scan closes its files
  /// faster than a store takes them.
  private static let mostProbes: Int = {
    var limit = rlimit()
    let isKnown = getrlimit(__rlimit_resource_t(RLIMIT_NOFILE.rawValue), &limit) == 0
    return isKnown ? Int(min(limit.rlim_cur / 4, 16_384)) : 512
  }()
  /// How many of them are in memory at once.
  private static let mostProbesAtOnce = 8
  private var probesWaiting: [ProbeJob] = []
  private var probesUnderWay = 0

  func startNextProbes() {
    while probesUnderWay < Self.mostProbesAtOnce, !probesWaiting.isEmpty {
      probesUnderWay += 1
      orders.post(.prepareProbe(probesWaiting.removeFirst()))
    }
  }
  func takeProbes() -> [PreparedProbe] { probes.takeAll() }
  func endedProbe(_ bytes: Int64) {
    probesUnderWay -= 1
    budget.ended(bytes)
  }

  /// One is over.
  func ended(_ job: UploadJob) {
    underWay -= 1
    budget.ended(job.range.count)
  }
}

/// Blocks go up behind the readers, also after the file is closed.
extension FleetMember {
  /// Has a block go up. `isOwed`: the store did not take it at first, and may not be used for reading.
  func upload(_ file: SharedFile, _ block: Int, _ place: FleetNode.Place, isOwed: Bool = false) {
    let now = Instant.now
    let local = block % layout.segment
    guard !setup.isReadOnly, isOwed || breaker.takesUploads(now: now), let served = file.served,
      let start = uploads.budget.admit(file.range(of: block).count, now: now)
    else {
      owe(file, now)
      return tell(.uploaded(local, .dropped), at: place)
    }
    file.offered.insert(block)
    file.uploads += 1
    uploads.add(
      UploadJob(
        number: file.number, id: file.id, block: block, range: file.range(of: block), piece: file.piece, place: place,
        epoch: file.epoch, served: served, isOwed: isOwed, startsAt: start))
  }

  /// Sends what is prepared, and has more prepared. Returns when the next one may begin.
  func sendUploads(_ now: Instant) -> Instant {
    for probe in uploads.takeProbes() { send(probe) }
    uploads.startNextProbes()
    for prepared in uploads.takePrepared() {
      let job = prepared.job
      guard let body = prepared.body, let file = files[job.number], file.epoch == job.epoch else {
        over(job, .dropped, isReadable: false)
        continue
      }
      guard breaker.isUp || job.isOwed else {
        over(job, .dropped, isAgain: false)
        continue
      }
      let label = BlockLabel(
        generation: job.id, index: job.block, length: Int(job.range.count), crc32c: body.checksum.value)
      ask(.upload(job, label)) {
        .putIfAbsent(
          $0, ObjectName.block(job.id, job.block).text, body, meta: ["mfs": label.text, "mfs-pieces": prepared.pieces],
          timeout: Self.longestUpload)
      }
    }
    return uploads.startNext(now)
  }
  private static let longestUpload = 60.0

  func uploaded(_ outcome: StoreOutcome, _ job: UploadJob, _ label: BlockLabel) {
    heard(outcome, isUpload: true, isTimed: false, isTrial: job.isOwed)
    noteRefusal(outcome)
    switch outcome {
    case .written: over(job, .stored, label)
    case .conflict:
      // Another node was first: with the same bytes?
      ask(.compare(job, label)) { .head($0, ObjectName.block(job.id, job.block).text, timeout: 5) }
    default: over(job, .dropped)
    }
  }

  /// Keeps why the store does not take blocks, and tells it: readers may be well served meanwhile.
  private func noteRefusal(_ outcome: StoreOutcome) {
    switch outcome {
    case .busy(_, let why), .refused(let why), .broken(let why): offers.refusal = short(why)
    case .written, .conflict: return offers.refusal = ""
    default: return
    }
    let now = Instant.now
    guard breaker.isUp, offers.refusalToldAt.map({ now.seconds(since: $0) > Self.tellsRefusalEach }) ?? true else {
      return
    }
    offers.refusalToldAt = now
    Log.warning("the fleet's store does not take a block, which is offered again: \(offers.refusal)")
  }
  /// The log has a refusal at most once in so many seconds: a store may take one block and refuse the next.
  private static let tellsRefusalEach = 600.0

  func compared(_ outcome: StoreOutcome, _ job: UploadJob, _ label: BlockLabel) {
    heard(outcome, isTimed: false)
    guard case .found(let object) = outcome else { return over(job, .dropped) }
    guard let there = object.meta["mfs"].flatMap({ BlockLabel($0) }), there.generation == label.generation,
      there.index == label.index, there.length == label.length,
      object.size.map({ $0 == Int64(label.length) }) ?? true
    else { return replace(object, job) }
    over(job, there == label ? .existed : .differs, label)
  }

  /// No mediafs wrote what is in the block's place: it is removed, and the block offered once more. If it is there
  /// then, it stays, and holds up no other block.
  private func replace(_ object: StoredObject, _ job: UploadJob) {
    let isNew = files[job.number]?.foreign.insert(job.block).inserted == true
    guard isNew, let etag = object.etag else {
      Log.warning("an object of the fleet's store that is no block has a block's name, and cannot be removed")
      return over(job, .dropped, isReadable: false)
    }
    ask(.removal) { .delete($0, ObjectName.block(job.id, job.block).text, ifMatch: etag, timeout: 5) }
    over(job, .dropped, isAgain: false)
  }

  /// An upload is over. `isReadable`: whether its bytes could be read; if not, it is not tried again. `isAgain`:
  /// whether a dropped one says that the store takes nothing now.
  private func over(
    _ job: UploadJob, _ result: UploadResult, _ label: BlockLabel? = nil, isReadable: Bool = true,
    isAgain: Bool = true
  ) {
    uploads.ended(job)
    if let file = files[job.number] {
      file.uploads -= 1
      if isReadable { file.offered.remove(job.block) }
      switch result {
      case .stored, .existed:
        file.inTier.insert(job.block)
        file.sums[job.block] = label?.crc32c
        offerDigests(of: file)
        if offers.pause > 0, offers.next != .never { offers.next = .now }
        offers.pause = 0
      case .dropped where isReadable: owe(file, .now, isAgain: isAgain)
      case .dropped, .differs: break
      }
    }
    tell(.uploaded(job.block % layout.segment, result), at: job.place)
  }
}
