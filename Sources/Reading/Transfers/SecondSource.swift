import Base
import Fetching
import Manifest

/// One version of a resource as a second source knows it: by its strong tag and its size, all machines mean the same
/// bytes.
package struct SecondFile: Sendable {
  package let key: ResourceKey
  /// The catalog's number of the version, which no other one has.
  package let generation: Int64
  package let etag: String
  package let size: Int64
  /// Last-Modified in seconds since 1970, and the media type, as far as the origin sent them.
  package let modified: Int64?
  package let mediaType: String?

  package init(key: ResourceKey, generation: Int64, etag: String, size: Int64, modified: Int64?, mediaType: String?) {
    (self.key, self.generation, self.etag, self.size) = (key, generation, etag, size)
    (self.modified, self.mediaType) = (modified, mediaType)
  }
}

/// What the second source tells of a resource of which the origin has told nothing.
package enum SecondFacts {
  /// Nothing: the origin is asked.
  case none
  /// It tells soon.
  case wait
  /// Its version, and when the origin last told a machine that it is this one. The version has no number here.
  case found(SecondFile, checkedAt: Instant)
}

/// What is known of a file when it is planned.
package struct SecondView {
  /// What is stored of it here.
  package let stored: ByteRangeSet
  /// The file that has the stored bytes.
  package let served: ServedFile?
  /// Whether the rest of it may be fetched now.
  package let continues: Bool
  /// Whether it is complete in the library, and then its SHA-256, if the list has one.
  package var isComplete = false
  package var sha256: Checksum?
}

/// What a second source tells of the bytes of a file that are all here.
package enum SecondDigest: Sendable {
  /// Nothing.
  case none
  /// It tells soon.
  case wait
  /// The SHA-256 that another machine's list has.
  case sha256(Checksum)
  /// Bytes that it gave are not the file's.
  case differs
}

/// What readers want of a file now, and what is on its way.
package struct SecondWants {
  /// What was asked for them, or is to be.
  package var ranges: [ByteRange] = []
  /// Where they wait.
  package var fronts: [Int64] = []
  /// What is on its way for anybody.
  package var inFlight: [ByteRange] = []

  /// Nothing.
  package init() {}

  /// All of it that is on its way or about to be asked for.
  package var covered: ByteRangeSet { (inFlight + ranges).reduce(into: ByteRangeSet()) { $0.insert($1) } }
}

/// Where missing bytes are asked for.
package enum SecondRoute: Equatable {
  /// The first of them, from the origin.
  case origin(ByteRange)
  /// The first of them, and maybe some around them, from the second source.
  case second(ByteRange)
  /// Up to there nobody is asked now. The second source says when that changes.
  case wait(until: Int64)
}

/// A source of bytes beside the origins, which also says when the origin may be asked. Declared here, implemented by
/// Sharing, faked by tests.
///
/// It belongs to the transfer thread. What Reading knows of origins stays in force for each request to them: the source
/// only says whether it may be made.
package protocol SecondSource: AnyObject {
  /// Called with the files whose routes may be others now.
  var onChange: (ResourceKey) -> Void { get set }
  /// What it tells of a resource. `isCheck`: if that is too old, the caller asks the origin. Of several machines one is
  /// to do so, and the others are told what it heard.
  func facts(of key: ResourceKey, isCheck: Bool, now: Instant) -> SecondFacts
  /// The origin has just told that the resource has this version.
  func confirmed(_ file: SecondFile)
  /// Before a file is planned. Returns where its background download may ask; nil: anywhere.
  func look(at file: SecondFile, _ view: SecondView, now: Instant) -> [ByteRange]?
  /// What readers want from now on: it replaces what they wanted before. Returns what the second source has got while
  /// the origin was asked for it: the origin need not send it.
  func want(_ wants: SecondWants, of file: SecondFile, now: Instant) -> [ByteRange]
  /// The way of missing bytes. `isProven`: whoever wants them takes what follows too.
  func route(_ range: ByteRange, of file: SecondFile, isProven: Bool, now: Instant) -> SecondRoute
  /// What the origin is to be asked for though nobody here wants it: other machines wait for it. `wants`: what is
  /// wanted.
  func owes(_ file: SecondFile, besides wants: SecondWants) -> [ByteRange]
  /// Nothing of a version is wanted now. `isFailing`: its origin gives nothing.
  func rest(_ generation: Int64, isFailing: Bool)
  /// A version is not open any more. `isReplaced`: the origin has another one.
  func close(_ generation: Int64, isReplaced: Bool)
  /// When it takes more of what is stored here and nobody may have open; never: nothing.
  func takesStored(now: Instant) -> Instant
  /// Something of a version is stored: what the second source lacks of it can be had from here.
  func offer(_ file: SecondFile, _ view: SecondView, now: Instant)
  /// All that is stored was offered.
  func tookAllStored(now: Instant)
  /// What it tells of all bytes of a version.
  func digest(of generation: Int64) -> SecondDigest
  /// Stored bytes of a version are about to be removed.
  func removes(_ generation: Int64)
}

/// Plans what is asked of the second source, and what of the origins because of it.
extension Scheduler {
  /// The file as the second source knows it; nil: it is not for that source.
  func secondFile(_ download: Download, size: Int64) -> SecondFile? {
    guard second != nil, !download.ranges.wantsWhole, !download.distrustsSecond, size > 0 else { return nil }
    let (generation, isCopy) = download.content.guarded.withLock { ($0.held.generation, $0.held.isCopy) }
    // The lists of other machines may have no checksum: for them the tag alone says what the bytes are.
    guard let generation, let etag = generation.validators.strongETag,
      isCopy || !generation.isMixed
    else { return nil }
    return SecondFile(
      key: download.key, generation: generation.id, etag: etag, size: size,
      modified: generation.validators.lastModified, mediaType: generation.mediaType)
  }

  /// Whether the second source tells, or is about to tell, what the file is: then the origin is not asked now.
  func isTold(_ download: Download, _ now: Instant) -> Bool {
    guard let second, download.transfers.isEmpty else { return false }
    switch second.facts(of: download.key, isCheck: false, now: now) {
    case .none: return false
    case .wait: return true
    case .found(let file, let checkedAt):
      let validators = Validators(etag: file.etag, lastModified: file.modified)
      let found = GenerationCheck.Identity(validators: validators, size: file.size, mediaType: file.mediaType)
      guard case .accepted = generations.identify(download, as: found, mirror: nil) else { return false }
      download.content.guarded.withLock { $0.held.checked(at: checkedAt) }
      download.wish.head = false
      downloads.changed(download)
      planAgain(now)
      return true
    }
  }

  /// Whether an open that asks whether the file changed asks the origin; else the second source has told that, or does
  /// soon.
  func asksOrigin(_ download: Download, _ now: Instant) -> Bool {
    guard let second, let known = download.identity else { return true }
    switch second.facts(of: download.key, isCheck: true, now: now) {
    case .none: return true
    case .wait: return false
    case .found(let file, let checkedAt):
      guard file.etag == known.validators.strongETag, file.size == known.size,
        now.seconds(since: checkedAt) <= max(room.options.fresh, 1)
      else { return true }
      checks.confirmed(download, now)
      download.content.guarded.withLock { $0.held.checked(at: checkedAt) }
      return false
    }
  }

  /// Shows a file to the second source before its plan is made. Returns where its background download may ask.
  func look(at file: SecondFile, of download: Download, _ view: SecondView, _ now: Instant) -> [ByteRange]? {
    download.second = file.generation
    return second?.look(at: file, view, now: now)
  }

  /// A program opened a complete file: what the second source lacks of it can be had from here. `isNew`: it was
  /// completed just now, and its checksum is right.
  func showHeld(_ download: Download, _ now: Instant, isNew: Bool = false) {
    let (stored, served) = download.content.guarded.withLock { guarded in
      (guarded.held.stored, guarded.held.isCopy && guarded.held.removal == .none ? guarded.held.file : nil)
    }
    guard let served, let size = download.identity?.size, let file = secondFile(download, size: size) else { return }
    var view = SecondView(stored: stored, served: served, continues: false)
    view.isComplete = isNew
    if isNew, let checksum = download.content.entry.checksum, checksum.algorithm == .sha256 { view.sha256 = checksum }
    _ = look(at: file, of: download, view, now)
  }

  /// Offers what is stored of a file that nobody may have open.
  func offerStored(_ download: Download, _ now: Instant) {
    let (stored, served) = download.content.guarded.withLock { guarded in
      (guarded.held.stored, guarded.held.removal == .none ? guarded.held.file : nil)
    }
    guard let served, !stored.isEmpty, let size = download.identity?.size,
      let file = secondFile(download, size: size)
    else { return }
    second?.offer(file, SecondView(stored: stored, served: served, continues: false), now: now)
  }

  /// Gives each start that the plan of a file added its way. `parked`: what readers wait for. `owedAtOnce`: how many
  /// bytes are requested at once of what other machines wait for.
  func route(
    from first: Int, of file: SecondFile, _ download: Download, parked: [ByteRange], checked: ByteRange?,
    _ view: SecondView, owedAtOnce: Int64, _ now: Instant
  ) {
    guard let second else { return }
    let wanted = Array(starts[first...])
    starts.removeSubrange(first...)
    var wants = SecondWants()
    for running in download.transfers where !running.isCancelled && !running.active.isStream {
      wants.inFlight.append(running.active.rest)
      if running.active.purpose <= .next { wants.ranges.append(running.active.rest) }
    }
    for start in wanted where start.purpose <= .next { if let range = start.range { wants.ranges.append(range) } }
    for range in parked { if let gap = view.stored.firstGap(in: range) { wants.fronts.append(gap.start) } }
    let left = second.want(wants, of: file, now: now)
    for running in download.transfers
    where running.generation == nil && running.kind == .window && !running.isCancelled && !running.active.isStream
      && left.contains(where: { $0.contains(running.active.rest.start) })
    {
      download.cancel(running.active.id)
    }
    let running = download.transfers.filter { !$0.isCancelled && $0.generation != nil }.map(\.active.rest.start)
    // What this turn asks of the second source. Starts in one block may each have been made to reach its end.
    var shared = ByteRangeSet()
    for start in wanted {
      guard start.kind == .window, var rest = start.range else {
        starts.append(start)
        continue
      }
      // Only the origin knows whether it has another version: for that, a few bytes are enough.
      if let part = checked?.intersection(rest) {
        var asking = start
        asking.range = part
        starts.append(asking)
        continue
      }
      while !rest.isEmpty {
        var part = start
        let next: Int64
        switch second.route(rest, of: file, isProven: start.isProven, now: now) {
        case .origin(let range): (part.range, next) = (range, range.end)
        case .second(let range):
          part.generation = file.generation
          next = range.end
          part.range = shared.firstGap(in: range).map { gap in
            // What was added to the start ends where a transfer under way goes on.
            let end = running.filter { $0 >= rest.end && $0 > gap.start }.reduce(gap.end, min)
            return ByteRange(gap.start, end)
          }
          if let asked = part.range { shared.insert(asked) }
        case .wait(let end): (part.range, next) = (nil, end)
        }
        if part.range != nil { starts.append(part) }
        rest = ByteRange(min(max(next, rest.start + 1), rest.end), rest.end)
      }
    }
    guard landing.intake == .everything, !download.ownFile.isPaused else { return }
    for owed in second.owes(file, besides: wants) {
      // Nobody here waits for it: like a copy, it gets what players leave.
      let range = ByteRange(owed.start, min(owed.end, owed.start + owedAtOnce))
      var start = PendingStart(download: download, range: range, kind: .window, purpose: .shared)
      start.claim = .share
      start.isOwed = true
      starts.append(start)
    }
  }

  /// Nothing of the download is asked for now.
  func restSecond(_ download: Download) {
    guard let generation = download.second else { return }
    second?.rest(generation, isFailing: download.attempts.hasFailed)
  }

  /// Starts a transfer from the second source, on a line of its own: what the origin's line shows stays the origin's.
  func admitSecond(_ start: PendingStart, _ generation: Int64, _ now: Instant) {
    let download = start.download
    guard let range = start.range else { return }
    let isForReader = start.purpose <= .shared
    guard lines[Line.second].active < (isForReader ? Self.mostSecond : Self.mostSecond / 2) else {
      return downloads.noteBlocked(download)
    }
    let id = nextID()
    lines.update(Line.second) { $0.began(id, isBackground: start.purpose >= .index, now: now) }
    var request = TransferRequest(id: id, url: "", range: range)
    request.generation = generation
    var running = Running(
      active: ActiveTransfer(id: id, position: range.start, end: range.end, purpose: start.purpose, rate: nil),
      kind: .window, mirror: download.mirrors.current, host: Line.second, isResolved: false, started: now,
      lastByte: now)
    running.generation = generation
    running.audience = audience(of: start)
    download.transfers.append(running)
    download.isDormant = false
    downloads.began(id, of: download)
    Log.debug("transfer \(id.rawValue): \(start.purpose) \(range) of \(download.content.path), shared")
    service.start(request)
  }
  /// The most transfers from the second source at once.
  private static let mostSecond = 8
}

extension Line {
  /// The key of the second source's line, which no origin has.
  static let second = "the fleet's store"
}

extension TransferThread {
  /// The origin answered with the known version: other machines need not ask it for a while.
  func tellSecond(_ download: Download, _ now: Instant) {
    guard let second = scheduler.second, !download.opinion.comparison.isDue,
      download.toldSecondAt.map({ now.seconds(since: $0) > max(Self.tellsEach, room.options.fresh / 2) }) ?? true,
      let size = download.identity?.size, let file = scheduler.secondFile(download, size: size)
    else { return }
    download.toldSecondAt = now
    second.confirmed(file)
  }
  /// In seconds.
  private static let tellsEach = 10.0
}

/// What transfers from the second source bring: only what is known to be right.
extension TransferThread {
  func secondResponded(_ head: ResponseHead, _ download: Download, _ index: Int, _ now: Instant) -> Bool {
    let running = download.transfers[index]
    guard download.content.guarded.withLock({ $0.held.generation?.id }) == running.generation,
      case .part(let range, _) = head.body
    else { return false }
    download.transfers[index].responded = true
    download.transfers[index].lastByte = now
    download.transfers[index].active.position = range.start
    download.transfers[index].active.end = range.end
    lines.update(running.host) { line in
      line.estimate.responded(after: head.firstByteSeconds, now: now)
      line.answered(now)
      line.responded(running.active.id, over: nil, isBackground: running.isBackground)
    }
    return true
  }

  func secondReceived(_ bytes: UnsafeRawBufferPointer, _ download: Download, _ index: Int, _ now: Instant) -> Bool {
    let count = Int64(bytes.count)
    let running = download.transfers[index]
    guard download.content.guarded.withLock({ $0.held.generation?.id }) == running.generation else { return false }
    let start = running.active.position
    download.transfers[index].active.position = start + count
    download.transfers[index].bytes += count
    download.transfers[index].lastByte = now
    download.transfers[index].meter.received(bytes.count, now: now)
    download.pace.received(bytes.count, now: now)
    download.fetched.add(count, for: running.audience, from: running.host)
    room.counters.add(UInt64(bytes.count), to: .sharedBytes)
    lines.update(running.host) { $0.received(bytes.count, of: running.active.id, now: now) }
    downloads.changed(download)
    let before = download.pace.fresh
    landing.source = .tier
    defer { landing.source = .origin }
    guard landing.land(bytes, at: start, download) else { return false }
    download.transfers[index].fresh += download.pace.fresh - before
    download.pace.progressed(count, now: now)
    download.content.guarded.withLock {
      $0.waiters.progressed(count, from: start + count, to: running.active.end, now: now)
    }
    return true
  }

  /// Whatever its end: it says nothing of the origin.
  func secondEnded(_ running: Running, _ download: Download, isWhole: Bool, _ now: Instant) {
    lines.update(running.host) { line in
      line.ended(
        running.active.id, now: now, isBackground: running.isBackground, hadResponse: running.responded,
        isCut: !isWhole)
      if running.responded {
        line.estimate.ended(running.bytes, after: now.seconds(since: running.started), now: now)
      }
    }
    downloads.changed(download)
    downloads.replanBlocked()
    downloads.publish(download)
  }
}
