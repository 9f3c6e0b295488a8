import Base
import CCrypto
import Fetching
import Reading

/// What a file's probe set is known to be.
enum KnownProbe {
  /// Nobody asked yet.
  case unknown
  /// So many are asked for or in memory that this one has to wait.
  case waiting
  case asking
  case absent
  case found(ProbeSet)
  /// There is one, which is not in memory any more: it is asked for again when it is needed.
  case stored
  /// There is one, of which nothing is needed any more.
  case used

  /// Whether none is known to be in the store.
  var mayBeWritten: Bool {
    switch self {
    case .unknown, .waiting, .absent: true
    case .asking, .found, .stored, .used: false
    }
  }

  var isFound: Bool { if case .found = self { true } else { false } }

  /// The piece that has the byte at `offset`, or that ends there.
  func piece(at offset: Int64) -> ProbeSet.Piece? {
    guard case .found(let set) = self else { return nil }
    return set.pieces.first { $0.offset <= offset && offset <= $0.end }
  }
}

extension ProbeSet.Piece {
  /// Where it ends, exclusive.
  var end: Int64 { offset + Int64(bytes.count) }
}

/// A part of a probe set on its way to Reading: for Reading a transfer like others.
struct ProbeRead {
  let id: TransferID
  let file: SharedFile
  let range: ByteRange
  let bytes: ArraySlice<UInt8>
}

/// Probe sets: what the first node that only looked at a file got of it, for the next ones. A block goes up when it is
/// whole, and a look makes none whole.
extension FleetMember {
  /// The most probe sets that are asked for or in memory at once, each below 1 MiB. Beyond that, one that nobody reads
  /// now makes room; where there is none, the next one waits, and after so many seconds does without.
  static let mostProbes = 24
  private static let longestProbeWait = 1.0

  // MARK: Reading

  /// Asks for the probe set of a file of which nothing is here, while the fleet's code looks for the block.
  func askForProbe(of file: SharedFile) {
    switch file.probe {
    case .unknown where file.stored.isEmpty, .stored: break
    default: return
    }
    if probesWaiting.isEmpty, makeRoomForProbe() { return requestProbe(of: file) }
    file.probe = .waiting
    probesWaiting.append((file, .now))
  }

  private func requestProbe(of file: SharedFile) {
    file.probe = .asking
    probesHeld.append(file)
    ask(.probeSet(file)) { .get($0, ObjectName.probe(file.id).text, timeout: answerTime) }
  }

  /// Whether one more may be asked for.
  private func makeRoomForProbe() -> Bool {
    if probesHeld.count < Self.mostProbes { return true }
    guard let idle = probesHeld.first(where: { $0.probe.isFound && $0.waits.isEmpty }) else { return false }
    dropProbe(of: idle, .stored)
    return true
  }

  /// Asks for those that waited and have room now. Returns when the first of the others has waited for too long.
  func askForWaitingProbes(_ now: Instant) -> Instant {
    while let (file, since) = probesWaiting.first {
      let end = since.adding(seconds: Self.longestProbeWait)
      let hasRoom = makeRoomForProbe()
      if !hasRoom, now < end { return end }
      probesWaiting.removeFirst()
      if hasRoom { requestProbe(of: file) } else { file.probe = .used }
      changed(file)
    }
    return .never
  }

  func probeRead(_ outcome: StoreOutcome, _ file: SharedFile) {
    heard(outcome)
    guard case .asking = file.probe else { return }  // it was closed meanwhile
    guard case .found(let object) = outcome else { return lacksProbe(file, .absent) }
    do throws(ObjectRefusal) {
      let set = try ProbeSet(object.body, of: file.id, key: setup.key)
      guard set.size == file.size else { throw .damaged("size") }
      file.probe = .found(set)
      changed(file)
    } catch {
      Log.debug("a probe set of the fleet counts as absent: \(error)")
      lacksProbe(file, .used)  // nobody replaces it
    }
  }

  private func lacksProbe(_ file: SharedFile, _ known: KnownProbe) {
    dropProbe(of: file, known)
    changed(file)
  }

  /// Forgets a probe set that was or is to be asked for, or is in memory.
  func dropProbe(of file: SharedFile, _ known: KnownProbe) {
    switch file.probe {
    case .asking, .found: probesHeld.removeAll { $0 === file }
    case .waiting: probesWaiting.removeAll { $0.file === file }
    case .unknown, .absent, .stored, .used: return
    }
    file.probe = known
  }

  /// All of it is stored here.
  func settleProbe(of file: SharedFile) {
    guard case .found(let set) = file.probe else { return }
    if set.pieces.allSatisfy({ file.stored.contains(ByteRange($0.offset, $0.end)) }) { dropProbe(of: file, .used) }
  }

  /// What of the wanted range the fleet's code shall hear of. What begins in a probe set is read from it, and what
  /// follows waits until a reader waits for it: who only looks stops there, as the first one did.
  func unprobed(_ range: ByteRange, _ file: SharedFile) -> ByteRange {
    if case .waiting = file.probe { return ByteRange(range.end, range.end) }
    guard let piece = file.probe.piece(at: range.start) else { return range }
    let rest = ByteRange(min(piece.end, range.end), range.end)
    return file.waits.contains { rest.contains($0) } ? rest : ByteRange(range.end, range.end)
  }

  /// The way of a range of which the probe set has a say; nil: it has none.
  func probeRoute(_ range: ByteRange, _ file: SharedFile) -> SecondRoute? {
    let block = Int(range.start / file.block)
    switch file.probe {
    case .waiting: return .wait(until: range.end)
    // The origin is not asked for what the set may have.
    case .asking where file.granted[block] != nil: return .wait(until: min(range.end, file.range(of: block).end))
    default: break
    }
    guard let piece = file.probe.piece(at: range.start) else { return nil }
    if range.start < piece.end { return .second(ByteRange(range.start, min(range.end, piece.end))) }
    if file.granted[block] != nil || file.looking.contains(block) || file.inTier.contains(block) { return nil }
    return unprobed(range, file).isEmpty ? .wait(until: range.end) : nil
  }

  /// Reads a range from the probe set in memory. False: it is not there.
  func startProbeRead(_ id: TransferID, _ file: SharedFile, _ range: ByteRange) -> Bool {
    guard let piece = file.probe.piece(at: range.start), range.end <= piece.end, !range.isEmpty else { return false }
    let first = Int(range.start - piece.offset)
    probeReads.append(ProbeRead(id: id, file: file, range: range, bytes: piece.bytes[first..<first + Int(range.count)]))
    return true
  }

  /// Gives on what was asked of probe sets. In a turn of its own: who asks is told when it has noted that it asked.
  func tellProbeReads() {
    while !probeReads.isEmpty {
      let reads = probeReads
      probeReads = []
      for read in reads {
        var head = ResponseHead(
          body: .part(read.range, total: read.file.size), url: "", firstByteSeconds: 0, reusedConnection: true)
        head.validators.etag = read.file.etag
        let isTaken =
          client?.transfer(read.id, responded: head) == true
          && read.bytes.withUnsafeBytes { client?.transfer(read.id, received: $0) } == true
        endings.append((read.id, isTaken ? .finished : .cancelled))
      }
    }
  }

  // MARK: Writing

  /// Has the probe set of a file written of which somebody only looked at the beginning. Where too much waits already,
  /// the next node that looks at the file does it.
  func offerProbe(of file: SharedFile) {
    guard !setup.isReadOnly, case .ready = phase, breaker.takesUploads(now: .now), file.ending == nil,
      file.probe.mayBeWritten, !file.isWhole(0), let served = file.served,
      let parts = Self.probeParts(of: file.stored, size: file.size)
    else { return }
    let job = ProbeJob(
      number: file.number, id: file.id, size: file.size, parts: parts, epoch: file.epoch, served: served)
    // It is small: the rate of uploads counts it, and it waits for nobody.
    guard uploads.budget.admit(job.bytes, now: .now) != nil else { return }
    guard uploads.add(job) else { return uploads.budget.ended(job.bytes) }
    file.uploads += 1
    file.probe = .used
  }

  /// The parts of a file that its probe set has: all that is stored, if that is little; else what is stored of its
  /// beginning and its end. nil: nobody looked at its beginning.
  static func probeParts(of stored: ByteRangeSet, size: Int64) -> [ByteRange]? {
    let room: Int64 = (1 << 20) - 4096  // below the object's limit, beside its text
    var ends = ByteRangeSet()
    ends.insert(ByteRange(0, min(size, room / 2)))
    ends.insert(ByteRange(max(0, size - room / 2), size))
    let parts = (stored.count <= room ? stored : stored.intersection(ends)).ranges.prefix(ProbeSet.most)
    return parts.first?.start == 0 ? Array(parts) : nil
  }

  func send(_ probe: PreparedProbe) {
    guard let body = probe.body, files[probe.job.number]?.epoch == probe.job.epoch, breaker.isUp else {
      return over(probe.job)
    }
    ask(.probeWrite(probe.job)) {
      .putIfAbsent($0, ObjectName.probe(probe.job.id).text, body, timeout: 10)
    }
  }

  func probeWritten(_ outcome: StoreOutcome, _ job: ProbeJob) {
    heard(outcome, isUpload: true, isTimed: false)
    over(job)
  }

  private func over(_ job: ProbeJob) {
    uploads.endedProbe(job.bytes)
    files[job.number]?.uploads -= 1
  }
}

/// A probe set that goes up.
struct ProbeJob: Sendable {
  /// The file by the catalog's number and by its id.
  let number: Int64, id: FleetID
  let size: Int64
  let parts: [ByteRange]
  /// ``SharedFile/epoch`` when it was asked for.
  let epoch: Int
  let served: ServedFile

  var bytes: Int64 { parts.reduce(0) { $0 + $1.count } }
}

/// A probe set's object.
struct PreparedProbe: Sendable {
  let job: ProbeJob
  /// nil: its bytes cannot be read any more.
  let body: StoreBody?

  /// Reads and digests the bytes: on a thread that nobody waits for.
  init(_ job: ProbeJob, _ key: FleetKey, for location: StoreLocation) {
    self.job = job
    let pieces = job.parts.compactMap { part in
      job.served.bytes(in: part).map { ProbeSet.Piece(offset: part.start, bytes: $0) }
    }
    let set = ProbeSet(size: job.size, pieces: pieces)
    body = pieces.count == job.parts.count ? set.bytes(of: job.id, key: key).map { StoreBody($0, for: location) } : nil
  }
}

extension ServedFile {
  /// The bytes of a range; nil: they cannot be read any more, or were evicted, and read as zeros.
  fileprivate func bytes(in range: ByteRange) -> [UInt8]? {
    var isThere = false
    let bytes = [UInt8](unsafeUninitializedCapacity: Int(range.count)) { buffer, count in
      isThere = fill(UnsafeMutableRawBufferPointer(buffer), at: range.start)
      count = isThere ? buffer.count : 0
    }
    return isThere && storing_seek_hole(number, range.start) >= range.end ? bytes : nil
  }
}
