import Base
import Fetching
import Reading

/// A part of a block on its way from the store: for Reading a transfer like others.
final class TierRead {
  let id: TransferID
  let request: StoreRequestID
  let file: SharedFile
  let block: Int
  /// Of the file; it begins with a piece.
  let range: ByteRange
  let begun = Instant.now
  var lastByte = Instant.now
  var hasBegun = false
  /// How many bytes have come, and how many had when its rate was asked for last.
  var received = 0
  private var judged: (at: Instant, received: Int)
  /// When it is judged next, if the fleet's code does not count the time of its block.
  var judgedAt: Instant
  var check: PieceCheck?
  var etag: String?
  /// Whether its bytes are not those that were stored.
  var isRotten = false
  /// Whether the answer has another form than was asked for, as caches and proxies send it: that says nothing of what
  /// is stored.
  var isMisfit = false

  init(_ id: TransferID, _ request: StoreRequestID, _ file: SharedFile, block: Int, range: ByteRange) {
    (self.id, self.request, self.file, self.block, self.range) = (id, request, file, block, range)
    judged = (begun, 0)
    judgedAt = begun.adding(seconds: FleetPointers.patience)
  }

  /// How many bytes a second have come since this was asked last.
  func rate(_ now: Instant) -> Double {
    defer { judged = (now, received) }
    return Double(received - judged.received) / max(now.seconds(since: judged.at), 0.001)
  }
}

/// Blocks from the store. No byte is given on before its piece is known to be right.
extension FleetMember: TransferService {
  package func start(_ request: TransferRequest) {
    guard let number = request.generation else { return commands.start(request) }
    guard let file = files[number], let range = request.range, breaker.isUp else {
      return endings.append((request.id, .cancelled))
    }
    if startProbeRead(request.id, file, range) { return }
    askForDigests(of: file)
    let block = Int(range.start / file.block)
    let whole = file.range(of: block)
    let id = StoreRequestID(nextRequest)
    nextRequest += 1
    let read = TierRead(request.id, id, file, block: block, range: range)
    (reads[request.id], readRequests[id]) = (read, read)
    let part = range == whole ? nil : ByteRange(range.start - whole.start, range.end - whole.start)
    store.start(
      .get(id, ObjectName.block(file.id, block).text, range: part, inPieces: true, timeout: Self.longestRead))
  }
  /// A block may take so many seconds. One that stands still ends much sooner.
  private static let longestRead = 60.0
  /// How long the bytes of a block may stand, once they come, in seconds.
  private static let longestPause = 1.0

  package func cancel(_ id: TransferID) {
    if let index = probeReads.firstIndex(where: { $0.id == id }) {
      probeReads.remove(at: index)
      return endings.append((id, .cancelled))
    }
    guard let read = reads[id] else { return commands.cancel(id) }
    forget(read)
    endings.append((id, .cancelled))
  }

  package func misorderedPackets(of id: TransferID) -> Int? { commands.misorderedPackets(of: id) }
  package func limit(_ rates: TransferRates) { commands.limit(rates) }
  package func dropConnections() { commands.dropConnections() }

  private func forget(_ read: TierRead) {
    (reads[read.id], readRequests[read.request]) = (nil, nil)
    store.cancel(read.request)
  }

  func received(_ bytes: UnsafeRawBufferPointer, _ object: StoredObject, _ read: TierRead) -> Bool {
    let now = Instant.now
    if !read.hasBegun || now.seconds(since: read.lastByte) > 0.1 {
      breaker.answered(now: now, after: read.hasBegun ? nil : now.seconds(since: read.begun))
    }
    (read.lastByte, read.etag) = (now, object.etag)
    read.received += bytes.count
    if read.check == nil {
      guard fits(object, read) else {
        read.isMisfit = true
        return false
      }
      guard let check = check(object, read) else {
        read.isRotten = true
        return false
      }
      read.check = check
      read.hasBegun = true
      read.file.inTier.insert(read.block)
      var head = ResponseHead(
        body: .part(read.range, total: read.file.size), url: "", firstByteSeconds: now.seconds(since: read.begun),
        reusedConnection: true)
      head.validators.etag = read.file.etag
      guard client?.transfer(read.id, responded: head) == true else { return false }
    }
    do throws(PieceCheck.Fault) {
      try read.check?.take(bytes) { piece in client?.transfer(read.id, received: piece) ?? false }
      return true
    } catch {
      read.isRotten = error == .wrong
      return false
    }
  }

  /// Whether the answer tells the block's length, and begins where it was asked to.
  private func fits(_ object: StoredObject, _ read: TierRead) -> Bool {
    let whole = read.file.range(of: read.block)
    guard object.size != nil else { return false }
    return object.range.map { $0.start == read.range.start - whole.start } ?? (read.range == whole)
  }

  /// What the block's metadata say its pieces are; nil: they are of another block, or of none.
  private func check(_ object: StoredObject, _ read: TierRead) -> PieceCheck? {
    let whole = read.file.range(of: read.block)
    let length = Int(whole.count)
    let piece = read.file.piece
    guard let label = object.meta["mfs"].flatMap({ BlockLabel($0) }), label.generation == read.file.id,
      label.index == read.block, label.length == length, object.size == Int64(length),
      let sums = object.meta["mfs-pieces"].flatMap({ PieceSums($0, length: length, piece: piece) }),
      allows(label.crc32c, at: read.block, of: read.file, object.etag)
    else { return nil }
    return PieceCheck(sums, piece: piece, length: length, from: Int(read.range.start - whole.start) / piece)
  }

  /// A read is over.
  func end(_ read: TierRead, _ outcome: StoreOutcome) {
    forget(read)
    let file = read.file
    // A block without bytes, of which nothing was received.
    if read.check == nil, read.received == 0 {
      switch outcome {
      case .found(let object): (read.isRotten, read.etag) = (true, object.etag)
      case .rotten(let etag, _): (read.isRotten, read.etag) = (true, etag)
      default: break
      }
    }
    let isWhole = read.check.map { Int64($0.position) == read.range.end - file.range(of: read.block).start } ?? false
    if case .found = outcome, isWhole {
      heard(outcome)
      return endings.append((read.id, .finished))
    }
    endings.append((read.id, .cancelled))
    var result = LookResult.failed
    if read.isRotten {
      result = .rotten
      Log.warning("a block of the fleet's store is not what was stored: it is removed, and fetched anew")
      if let etag = read.etag, !setup.isReadOnly {
        ask(.removal) { .delete($0, ObjectName.block(file.id, read.block).text, ifMatch: etag, timeout: 5) }
      }
    } else if case .absent = outcome {
      result = .absent
    }
    if result != .failed { file.inTier.remove(read.block) }
    // Reading gave it up: whether it is wanted still, the next plan says.
    if case .cancelled = outcome, !read.isRotten, !read.isMisfit { return }
    if file.looking.remove(read.block) != nil {
      tell(file, read.block) { .looked($0, result) }
      changed(file)
    } else if result == .failed {
      // It counts as here: the origin has the rest.
      file.inTier.remove(read.block)
    }
    heard(outcome)
  }

  /// Ends the reads to which the store does not answer, and those that let a reader wait. Returns when the next one has
  /// no time left.
  func dropSilentReads(_ now: Instant) -> Instant {
    var next = Instant.never
    let answerTime = answerTime
    for read in Array(reads.values) {
      let due = read.lastByte.adding(seconds: read.hasBegun ? Self.longestPause : answerTime)
      if due <= now {
        end(read, .timedOut)
        continue
      }
      next = min(next, due)
      // The fleet's code counts the wait for a block that it looks for. What counts as here, nobody else watches.
      let (file, block) = (read.file, read.block)
      if file.looking.contains(block) { continue }
      if read.judgedAt <= now {
        read.judgedAt = now.adding(seconds: Self.secondsLeft)
        if file.waits.contains(where: { file.range(of: block).contains($0) }), !isOnTime(read, now) {
          end(read, .cancelled)
          file.inTier.remove(block)
          changed(file)
          continue
        }
      }
      next = min(next, read.judgedAt)
    }
    return next
  }

  /// A reader has waited for a block long enough: what it waits for is asked from the origin, unless the store brings
  /// it in time. The rest of the block may still come from the store.
  func bypass(_ file: SharedFile, _ block: Int) {
    let now = Instant.now
    let late = reads.values.filter { $0.file === file && $0.block == block }
    if late.contains(where: { isOnTime($0, now) }) { return tell(file, block) { .window($0) } }
    for read in late { end(read, .cancelled) }
    file.bypasses.insert(block)
    if file.looking.remove(block) != nil { tell(file, block) { .looked($0, .failed) } }
    changed(file)
  }

  /// Whether a read, at the rate at which its bytes come, has the rest of its block within a second, or is no slower
  /// than the origin was.
  private func isOnTime(_ read: TierRead, _ now: Instant) -> Bool {
    let rate = read.rate(now)
    let whole = read.file.range(of: read.block)
    let missing = Double(whole.count - read.file.stored.count(in: whole))
    let origin = Double(fleet.ownRate << 10)
    return read.hasBegun && (missing <= rate * Self.secondsLeft || (origin > 0 && rate >= origin))
  }
  private static let secondsLeft = 1.0

  /// Tells the ends that are due.
  func tellEndings() {
    while !endings.isEmpty {
      let told = endings
      endings = []
      for (id, end) in told { client?.transfer(id, ended: end) }
    }
  }
}
