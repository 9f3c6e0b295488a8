import Base
import Fetching
import Manifest
import Reading

/// What a request to the store was for.
enum Asked {
  case format(sent: Instant), formatWrite, mark, nodes(sent: Instant, Set<UInt64>), probe, isBack
  case list(SharedFile, after: String?)
  case readLease(FleetNode.Place), writeLease(FleetNode.Place), claim(FleetNode.Place, Int)
  case upload(UploadJob, BlockLabel), compare(UploadJob, BlockLabel)
  case facts(ResourceKey), turn(ResourceKey, SecondFacts)
  case pointer(PointerWrite), head(PointerWrite), headOfNext(PointerWrite, String)
  case pointerWrite(PointerWrite)
  case probeSet(SharedFile), probeWrite(ProbeJob)
  case digests(SharedFile), digestsDue(SharedFile), digestsWrite
  case removal, seen(FleetID)
}

/// A request under way.
struct Question {
  let what: Asked
  let sent: Instant
}

/// Does what the fleet's code wants done.
extension FleetMember {
  /// Starts a request under a new number.
  func ask(_ what: Asked, _ make: (StoreRequestID) -> StoreRequest) {
    let id = StoreRequestID(nextRequest)
    nextRequest += 1
    asked[id] = Question(what: what, sent: .now)
    store.start(make(id))
  }

  private var allowance: Double { Double(4 * fleet.identity.roundTrip) / 1000 }
  /// How long what readers wait for may go unanswered, in seconds: far stores have longer.
  var answerTime: Double { breaker.detection(now: .now) + allowance }

  func perform(_ action: FleetNode.Action) {
    switch action {
    case .lookForWork(let milliseconds):
      timers[TimerKey(place: nil)] = Instant.now.adding(seconds: Double(milliseconds) / 1000)
    case .share(let place, let action):
      guard let file = files[Int64(place.generation)] else { return }
      switch action {
      case .set, .cancel: break
      default: Log.debug("shared \(place.generation), segment \(place.segment): \(action)")
      }
      perform(action, file, place)
    }
  }

  private func perform(_ action: ShareAction, _ file: SharedFile, _ place: FleetNode.Place) {
    let first = place.segment * layout.segment
    switch action {
    case .look(let block):
      if file.isClosed { return tell(.looked(block, .failed), at: place) }
      if file.isWhole(first + block) {
        tell(.held(BlockSet(block..<block + 1)), at: place)
        return tell(.looked(block, .failed), at: place)
      }
      file.looking.insert(first + block)
      changed(file)
    case .readLease:
      ask(.readLease(place)) {
        .get($0, ObjectName.lease(file.id, segment: place.segment).text, timeout: answerTime)
      }
    case .writeLease(let lease, let condition):
      let key = ObjectName.lease(file.id, segment: place.segment).text
      let body = StoreBody(lease.bytes)
      ask(.writeLease(place)) { id in
        switch condition {
        case .absent: .putIfAbsent(id, key, body, timeout: 0.5 + allowance)
        case .version(let version): .swap(id, key, body, etag: version.etag, timeout: 0.5 + allowance)
        }
      }
    case .claim(let block, let round):
      let claim = HelperClaim(node: fleet.identity.node, boot: fleet.identity.boot)
      ask(.claim(place, block)) {
        .putIfAbsent(
          $0, ObjectName.claim(file.id, first + block, round: round).text, StoreBody(claim.bytes),
          timeout: 0.3 + allowance)
      }
    case .fetch(let block):
      if file.isClosed { return tell(.fetched(block, .stopped), at: place) }
      if file.isWhole(first + block) { return tell(.fetched(block, .whole), at: place) }
      let have = file.stored.count(in: file.range(of: first + block))
      file.left.remove(first + block)
      file.granted[first + block] = .init(since: .now, base: have, told: have)
      changed(file)
    case .bypass(let block): bypass(file, first + block)
    case .stopFetch(let block):
      guard file.granted.removeValue(forKey: first + block) != nil else { return }
      if fleet.isKnown(block, at: place) { file.left.insert(first + block) }
      tell(.fetched(block, file.isWhole(first + block) ? .whole : .stopped), at: place)
      changed(file)
    case .upload(let block): upload(file, first + block, place)
    case .set(let timer, let milliseconds):
      timers[TimerKey(place: place, timer: timer)] = Instant.now.adding(seconds: Double(milliseconds) / 1000)
    case .cancel(let timer): timers[TimerKey(place: place, timer: timer)] = nil
    case .end(let reason): ended(file, reason)
    }
  }

  /// The file is shared no more: from now on it comes from its origin alone.
  private func ended(_ file: SharedFile, _ reason: EndOfSharing) {
    file.ending = reason
    if reason == .unstable {
      Log.warning("the origin of a shared file sends other bytes under the same tag: this mount shares it no more")
    }
    let (granted, looking) = (file.granted.keys, file.looking)
    (file.granted, file.looking, file.bypasses, file.windows) = ([:], [], [], [:])
    for block in granted { tell(file, block) { .fetched($0, .stopped) } }
    for block in looking { tell(file, block) { .looked($0, .failed) } }
    changed(file)
  }

  /// Asks for a page of the names of a file's blocks.
  func list(_ file: SharedFile, after continuation: String?) {
    ask(.list(file, after: continuation)) {
      .list($0, ObjectName.blocks(of: file.id), .init(continuation: continuation), timeout: 5)
    }
  }

  /// Fires the timers that are due. Returns when the next one is.
  func fireTimers(_ now: Instant) -> Instant {
    // In a fixed order: the earliest first.
    while let (key, time) = timers.min(by: { $0.value < $1.value }), time <= now {
      timers[key] = nil
      if let place = key.place {
        tell(.timer(key.timer), at: place)
      } else {
        change { $0.workIsDue(into: &$1) }
      }
    }
    return timers.values.min() ?? .never
  }

  // MARK: The breaker

  /// The breaker hears how a request ended. `isTimed`: no answer in its time means something. `isTrial`: the store is
  /// tried with what it did not take before, and readers do not suffer for it if it does not take it now either.
  func heard(
    _ outcome: StoreOutcome, after seconds: Double? = nil, isUpload: Bool = false, isTimed: Bool = true,
    isTrial: Bool = false
  ) {
    let now = Instant.now
    note(outcome, isTimed: isTimed, isTrial: isTrial)
    switch outcome {
    case .busy where isTrial, .refused where isTrial, .broken where isTrial: break
    case .found, .written, .deleted, .listed, .absent, .conflict, .rotten:
      // That a block is there already says nothing of the room for others.
      let isTaken = if case .written = outcome { isUpload } else { false }
      breaker.answered(now: now, after: seconds, isUpload: isTaken)
    case .busy: breaker.failed(.slowDown, now: now)
    case .refused: breaker.failed(.denied, now: now)
    case .full(let why):
      if !breaker.isFull { Log.warning("the fleet's store takes no more, and readers go on: \(short(why))") }
      breaker.failed(.full, now: now)
    case .broken: breaker.failed(.error, now: now)
    case .timedOut: if isTimed { breaker.failed(.silent, now: now) }
    case .cancelled: break
    }
    followBreaker()
  }

  /// Keeps why a store is not used, if it is not, and tells when that becomes another reason.
  private func note(_ outcome: StoreOutcome, isTimed: Bool, isTrial: Bool) {
    let before = reasonKind
    switch outcome {
    case .busy(_, let why), .refused(let why), .broken(let why):
      if isTrial { return }
      reason = short(why)
      // The words of one kind differ in the object that was asked for, and in milliseconds.
      reasonKind = if case .busy = outcome { .slowDown } else if case .refused = outcome { .denied } else { .error }
    case .timedOut where isTimed && breaker.isUp: (reason, reasonKind) = ("", nil)
    default: return
    }
    guard reasonKind != before, !breaker.isUp else { return }
    nextReport = Instant(nanoseconds: 0)
    if !reason.isEmpty { Log.warning("the fleet's store is still not used: \(reason)") }
  }

  /// A reason without the store's place, which stands before it.
  func short(_ why: String) -> String {
    let place = "\(store.location.description): "
    return why.hasPrefix(place) ? String(why.dropFirst(place.count)) : why
  }

  /// Takes every file from the store, or to it again, when the breaker says so.
  func followBreaker() {
    // What follows may come back here.
    guard breaker.isUp != (downSince == nil) else { return }
    let isUp = breaker.isUp
    downSince = isUp ? nil : .now
    nextReport = Instant(nanoseconds: 0)
    if isUp {
      Log.info("the fleet's store answers again")
    } else if reason.isEmpty {
      Log.info("the fleet's store does not answer: every file comes from its origin until it does")
    } else {
      Log.warning("the fleet's store is not used, and every file comes from its origin: \(reason)")
    }
    if !isUp {
      for read in Array(reads.values) { end(read, .timedOut) }
      for number in Array(files.keys) { rest(number, isFailing: false) }
    }
    change { $0.tier(isUp: isUp, into: &$1) }
    if isUp { for file in files.values { owe(file, .now) } }
    for file in files.values where !file.isClosed { changed(file) }
  }

  /// Asks the store whether it is back, when it is time. Returns when that is.
  func askWhetherBack(_ now: Instant) -> Instant {
    guard case .ready = phase else { return .never }
    if breaker.asks(now: now) { ask(.isBack) { .get($0, ObjectName.format.text, timeout: TierBreaker.longest) } }
    return breaker.asksAt ?? .never
  }
}
