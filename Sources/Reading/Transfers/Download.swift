import Base
import Fetching
import Manifest
import Storing

/// One resource on the transfer thread: its content, its mirrors, and its transfers in flight.
final class Download {
  /// What the scheduler fetches of a resource besides the bytes that readers wait for.
  struct Wish {
    /// The rest of the file: it was played, or the policy or a user says so.
    var rest = false
    /// A user asked for the file by name: no policy stops it.
    var isByName = false
    /// When a user last ended its download. What was played before that is no reason to fetch the rest.
    var cancelledAt: Instant?
    /// What the user's rules say.
    var rules = FileRules()
    /// Whether no policy stops it.
    var isRequested: Bool { isByName || rules.storage == .keep }
    /// Whether the user's rules let bytes be fetched for which no reader waits.
    var mayRunAhead: Bool { !rules.isPaused && rules.storage != .online }
    /// The size, which no reader waits for: a listing is likely to ask for it, or a stat got the placeholder.
    var head = false
    /// Whether only programs that look at files waited for its length.
    var isLook = false
    /// What is fetched because the file before it is being played (``NextFiles``).
    var ahead: AheadWish?
    /// The ranges of ``ahead`` that may be requested now.
    var mayAhead: [ByteRange] { ahead.map { $0.hold == nil ? $0.ranges : [] } ?? [] }
    /// Whether its tail was requested, or is not worth a request.
    var tailDone = false
  }

  /// Attempts, failures and the last error.
  struct Attempts {
    var retry = Retry()
    /// Whether the scheduler requests nothing more until someone opens the file again.
    var hasFailed = false
    /// The last error, kept through retries until bytes arrive.
    var lastError: LastError?
  }

  /// Whether the resource's own partial file takes bytes.
  struct OwnFile {
    /// The file takes no more bytes, although the disk may. Reads are answered from memory until someone opens the file
    /// again.
    var isUnwritable = false
    /// Until when nothing of the file is stored, although the disk may take other files: its syncs fail, or the system
    /// was short of a resource such as descriptors.
    var pausedUntil: Instant?
    var isPaused: Bool { isUnwritable || pausedUntil != nil }
  }

  /// The resource's use of its line, and its lanes: how many windows it may have in flight there.
  struct LineUse {
    /// The number of the transfer that was started last.
    var lastStart: UInt64 = 0
    /// What the readers count for, and on which line; nil while they count for nothing.
    var standing: LineStanding?
    /// The clocks of its readers.
    var playouts = Playouts()
    /// Whether the line has room for what its players need beside the older ones.
    var fits = true
    /// Whether the file is open, not whole, and was read of late: its reader may jump at any time.
    var isVisited = false
    /// Bytes a second that the players on its line need that came before those of the file.
    var elders = 0.0
    /// Whether a reader is about to run out of bytes. It counts like one that waits.
    var isBehind = false
    var lanes = LaneControl()
  }

  let key: ResourceKey
  /// The entry from which its URLs are.
  private(set) var entry: ManifestEntry
  private let service: any TransferService
  var content: Content
  var mirrors: MirrorList
  /// The link that its resolver gave; nil for none, and for an entry without a resolver.
  var link: ResolvedLink?
  /// Which link it is (``Renewal/number``).
  var linkNumber = 0
  /// How the answers of the mirror that the generation comes from describe it, where another one began it.
  private(set) var joined: GenerationCheck.Identity?
  var seam = Seam()
  /// Whether its last request had to wait for a link.
  var waitsForLink = false
  /// Whether the resolver was asked because of a length, and no answer has had the right one since.
  var hasAskedForSize = false
  var ranges = RangeUse()
  var opinion = SecondOpinion()
  var transfers: [Running] = []
  var attempts = Attempts()
  var pace: DownloadPace
  var wish = Wish()
  var ownFile = OwnFile()
  var lineUse = LineUse()
  /// The file name in the origin's Content-Disposition.
  var suggestedName: String?
  /// The program of each thread that was looked at.
  private var programs: [Int32: Program] = [:]
  /// The version that is open at the second source; nil for none.
  var second: Int64?
  /// Whether its bytes had a wrong checksum: those of other machines are no better.
  var distrustsSecond = false
  /// When the second source last heard that the origin still has the version.
  var toldSecondAt: Instant?
  /// What was fetched of it since the server began.
  var fetched = FetchedBytes()
  /// Whether no program uses it. The transfer thread then looks at it in its sweeps alone, until something happens to
  /// it.
  var isDormant = false
  /// Whether it was told that a read of it waits for long (``Happening``).
  var hasToldStall = false
  /// Messages that wait until the finisher or the keeper has finished with the file.
  var postponed: [TransferMessage] = []

  init(content: Content, service: any TransferService, timeout: Double) {
    key = content.key
    self.service = service
    self.content = content
    entry = content.entry
    mirrors = MirrorList(entry.urls)
    pace = DownloadPace(seconds: Int(timeout.rounded(.up)))
    let held = content.guarded.withLock { $0.held }
    if let mirror = held.generation?.mirror, !held.stored.isEmpty, entry.resolver == nil { mirrors.came(from: mirror) }
  }

  /// Whether every byte is stored.
  var isWhole: Bool { content.guarded.withLock { $0.held.isWhole } }
  var hasStored: Bool { content.guarded.withLock { !$0.held.stored.isEmpty } }
  /// The known generation's validators, size and type; nil before the first response.
  var identity: GenerationCheck.Identity? {
    content.guarded.withLock { guarded in
      guarded.held.generation.map {
        GenerationCheck.Identity(validators: $0.validators, size: $0.size, mediaType: $0.mediaType)
      }
    }
  }

  /// Whether the list has other URLs or header fields for the resource than those that are asked.
  var hasNewSource: Bool {
    let now = content.entry
    return now.urls != entry.urls || now.headers != entry.headers || now.userAgent != entry.userAgent
      || now.referer != entry.referer || now.resolver != entry.resolver
  }

  /// Whether the list gave it other URLs since its version began: they must prove that they lead to it (``Seam``).
  private(set) var isRelisted = false
  /// Whether a link must prove that it leads to the version whose bytes are stored.
  var needsProof: Bool { isRelisted || content.entry.resolver != nil }

  /// Takes the entry's URLs of now. Transfers of URLs that the list has no more go on: what they bring is checked as
  /// everything is, and their failure says nothing.
  func takeSource() {
    entry = content.entry
    mirrors.relist(entry.urls)
    isRelisted = mirrors.ofGeneration == nil && identity != nil
    if mirrors.ofGeneration == nil { joined = nil }
    (link, linkNumber, seam) = (nil, 0, Seam())
    (ranges, opinion) = (RangeUse(), SecondOpinion())
    attempts.retry.progressed()
    forgive()
  }

  /// Takes `urls` in the place of those that it has been requested by. Transfers in flight go on.
  func replaceSource(_ urls: [String]) {
    mirrors.replace(by: urls)
    joined = nil
    attempts.retry.progressed()
    ranges.foundWorking()
    if attempts.hasFailed { forgive() }
  }

  /// Changes to the next mirror, as ``MirrorList/next(_:)`` has it.
  func nextMirror(_ now: Instant) -> Bool {
    guard mirrors.next(now) else { return false }
    obeysMirror(now)
    return true
  }

  /// The time that the current mirror named binds from now on, and no other one's.
  func obeysMirror(_ now: Instant) {
    let time = mirrors[mirrors.current].notBefore
    attempts.retry.changed(toMirrorNaming: mirrors.asksToWait(mirrors.current, now) ? time : nil)
  }

  /// A mirror brought bytes, or answered to the end. That says nothing of the time that another one named.
  func progressed(at mirror: Int) {
    if mirror != mirrors.current, attempts.retry.hasRetryAfter { return }
    attempts.retry.progressed()
  }

  /// Another mirror brings bytes of the version that is stored; its answers say `identity`.
  func goesOn(at mirror: Int, _ identity: GenerationCheck.Identity) {
    mirrors.ofGeneration = mirror
    joined = identity
  }

  /// The current mirror leads to the version that is stored; its answers say `identity`.
  func joins(_ identity: GenerationCheck.Identity) {
    mirrors.ofGeneration = mirrors.current
    (joined, isRelisted) = (identity, false)
  }

  /// A version begins, as the mirror at that place describes it. If that was replaced, those of now must lead to it.
  func begins(at mirror: Int?) {
    let isReplaced = mirror.map(mirrors.isReplaced) ?? false
    mirrors.ofGeneration = isReplaced ? nil : mirror
    (joined, isRelisted) = (nil, isReplaced)
  }

  /// Whether the current mirror is known to lead to the version that is stored.
  var isJoined: Bool { !needsProof || mirrors.ofGeneration == mirrors.current }

  func index(of id: TransferID) -> Int? { transfers.firstIndex { $0.active.id == id } }

  /// Cancels a transfer. It stays in the list until the service reports its end.
  func cancel(_ id: TransferID, _ reason: Running.Cancellation = .unwanted) {
    guard let index = index(of: id), !transfers[index].isCancelled else { return }
    transfers[index].cancellation = reason
    service.cancel(id)
  }

  /// Cancels every transfer but one.
  func cancelAll(except kept: TransferID? = nil) {
    for running in transfers where running.active.id != kept { cancel(running.active.id) }
  }

  /// Clears the failure, the backoff and the refusals, so that the next plan tries again.
  ///
  /// What the list has no more fails as long as that is so.
  func forgive() {
    if content.guarded.withLock({ $0.waiters.isUnlisted }) { return }
    attempts.hasFailed = false
    attempts.retry.progressed()
    ranges.unusableAnswers = 0
    mirrors.forgive()
    content.guarded.withLock { $0.waiters.clearRefusal() }
  }

  /// The program of a thread that reads. It is looked at while the thread waits: it may have ended when the file is
  /// closed.
  func program(of process: Int32) -> Program {
    if let known = programs[process] { return known }
    let looks = content.guarded.withLock { $0.waiters.isLooking(process) }
    let program = Program(ofThread: process, looks: looks)
    if programs.count > 64 { programs.removeAll() }
    programs[process] = program
    return program
  }
  func isLooker(_ process: Int32) -> Bool { program(of: process).isLooker }

  /// Whether a program that reads, and does not only look, waits for bytes or for its open.
  var hasReader: Bool {
    let waiting = content.guarded.withLock { guarded in
      guarded.waiters.parkedReads.map(\.process)
        + guarded.waiters.parkedProbes.filter { $0.kind != .attributes }.map(\.process)
    }
    return waiting.contains { !isLooker($0) }
  }

  /// Whether somebody waits for the file or reads it. A reader waits only now and then: a process that has the file
  /// open, or has just read it, is still reading.
  func isRead(_ now: Instant) -> Bool {
    let (waits, readers) = content.guarded.withLock { guarded in
      let recent = guarded.waiters.runs.runs.filter {
        guarded.waiters.opens > 0 || now.seconds(since: $0.lastRead) < ReaderRuns.longestPause
      }
      return (!guarded.waiters.isEmpty, recent.map(\.process))
    }
    return waits || readers.contains { !isLooker($0) }
  }

  /// Bytes that were requested in windows and have not arrived. A transfer without data for more than `patience`
  /// seconds does not count: its bytes may never arrive, and must not hold others back.
  func outstanding(_ now: Instant, patience: Double) -> Int64 {
    transfers.reduce(0) { sum, running in
      if running.active.isStream || running.active.end == .max || running.generation != nil { return sum }
      return now.seconds(since: running.lastByte) > patience ? sum : sum + running.active.rest.count
    }
  }
}
