import Base
import Manifest
import Media

/// Fetches the beginnings of the files that follow one that is being played, and all of the first of them when it would
/// come too late otherwise. Only from what the line has left. Owned by the transfer thread.
///
/// The keeper looks up which files these are, and reads the indexes: this thread reads neither the catalog nor a file.
final class NextFiles {
  /// How often it looks, in seconds, and how often the keeper reads indexes on.
  private static let interval = 0.5
  private static let indexInterval = 2.0
  /// What it leaves of the store's space, besides what the open files still need, in bytes.
  static let reserve: Int64 = 64 << 20
  /// The bytes of the head and the tail of a kind of which no look has shown more.
  private static let head = Planner.headLength

  /// What follows a file that is being played.
  private struct Following {
    /// nil: the keeper looks it up.
    var files: [ResourceKey]?
    /// Whether all of the first file is fetched. It stays so: the less is missing, the later it would have to begin.
    var takesAll = false
    /// Files whose bytes were removed meanwhile: they are not fetched again.
    var removed: Set<ResourceKey> = []
  }

  private let room: ReadingRoom
  private let lines: Lines
  private let downloads: Downloads
  private var watches: [ResourceKey: PlayWatch] = [:]
  private var following: [ResourceKey: Following] = [:]
  private var wanted: Set<ResourceKey> = []
  /// Files whose index the keeper is to read on, with the bytes that were stored when it did last.
  private var read: [ResourceKey: Int64] = [:]
  private var nextLook = Instant(nanoseconds: 0)
  private var nextIndexes = Instant(nanoseconds: 0)

  init(room: ReadingRoom, lines: Lines, downloads: Downloads) {
    self.room = room
    self.lines = lines
    self.downloads = downloads
  }

  /// The keeper found the files that follow the one of `content`. It counted them as open.
  func found(_ files: [Content], after content: Content) {
    let files = files.map { file in
      let download = downloads.download(of: file)
      room.uncount(file)
      // Until the next look it is not put away.
      if !download.isWhole {
        download.wish.ahead = download.wish.ahead ?? AheadWish(ranges: [])
        wanted.insert(download.key)
      }
      return download.key
    }
    following[content.key]?.files = files
    nextLook = Instant(nanoseconds: 0)
  }

  /// The stored bytes of a file are removed: nothing is fetched ahead in their place.
  func removed(_ key: ResourceKey) {
    // While the keeper still looks them up, any file may be one of them.
    for (played, next) in following where next.files?.contains(key) ?? true { following[played]?.removed.insert(key) }
    downloads[key]?.wish.ahead = nil
  }

  /// Called at each look of the transfer thread. `canStore`: whether the store takes background downloads.
  func look(_ probes: ProbeSets, canStore: Bool, _ now: Instant) {
    guard room.options.looksAhead, now >= nextLook else { return }
    nextLook = now.adding(seconds: Self.interval)
    for download in downloads.inOrder { watch(download, now) }
    watches = watches.filter { downloads[$0.key] != nil }
    following = following.filter { watches[$0.key]?.play != nil }
    if following.isEmpty, wanted.isEmpty { return }
    let wishes = wishes(probes, canStore: canStore, now)
    for key in wanted.union(wishes.keys).sorted() {
      guard let download = downloads[key] else { continue }
      // Also unchanged ones: a pause after a failure may be over.
      if download.wish.ahead != nil || wishes[key] != nil { downloads.changed(download) }
      download.wish.ahead = wishes[key]
    }
    wanted = Set(wishes.keys)
    readIndexes(now)
  }

  /// Notices whether a file is being played. If so, the keeper looks up what follows it.
  private func watch(_ download: Download, _ now: Instant) {
    let file = download.content.guarded.withLock { guarded in
      PlayWatch.File(
        runs: guarded.waiters.runs, size: guarded.held.size, isOpen: guarded.waiters.opens > 0,
        isComplete: guarded.held.isCopy, isWaited: !guarded.waiters.parkedReads.isEmpty)
    }
    guard file.isOpen || watches[download.key] != nil else { return }
    watches[download.key, default: PlayWatch()].look(
      file, download.lineUse.playouts, lineRate: lines.line(of: download).estimate.rate,
      isLooker: download.isLooker, now: now)
    guard watches[download.key]?.play != nil, following[download.key] == nil else { return }
    following[download.key] = Following()
    let (content, count) = (download.content, room.options.next)
    room.keeper.post(.job { $0.findNext(of: content, count: count) })
  }

  // MARK: What is wanted

  private func wishes(_ probes: ProbeSets, canStore: Bool, _ now: Instant) -> [ResourceKey: AheadWish] {
    var wishes: [ResourceKey: AheadWish] = [:]
    let (busy, isShort, needed) = openFiles(now)
    // A size is what the origin claims: the sums must not overflow.
    var spare = max(0, room.health.spare ?? 0) - min(needed, .max / 4) - Self.reserve
    for played in downloads.inOrder {
      guard let play = watches[played.key]?.play, let next = following[played.key], let files = next.files else {
        continue
      }
      let film = film(of: played)
      let left = play.left(film, size: played.size, now: now)
      let rate = film.flatMap { film in played.size.map { Double($0) / max(film.duration, 1) } } ?? play.pace
      for (place, key) in files.enumerated() {
        guard let download = downloads[key], wishes[key] == nil, !next.removed.contains(key), !download.isWhole else {
          continue
        }
        let beginning = AheadWish(ranges: ranges(of: download, probes, rate: rate))
        var wish = beginning
        let stored = download.content.guarded.withLock { $0.held.stored }
        if place == 0, takesAll(of: download, stored, after: played, left), let size = download.size {
          wish.ranges.append(ByteRange(0, size))
        }
        var missing = wish.missing(in: stored)
        // Where the whole file does not fit, its beginning may.
        if missing > spare { (wish, missing) = (beginning, beginning.missing(in: stored)) }
        if !canStore || missing > spare {
          wish.hold = .space
        } else if isShort || busy.contains(download.mirrors.host) {
          wish.hold = .line
        }
        if wish.hold != .space { spare -= missing }
        wishes[key] = wish
      }
    }
    return wishes
  }

  /// The lines that still have to bring the rest of an open file, whether a player waits or is about to, and how many
  /// bytes the open files need.
  private func openFiles(_ now: Instant) -> (busy: Set<String>, isShort: Bool, needed: Int64) {
    var (busy, isShort, needed): (Set<String>, Bool, Int64) = ([], false, 0)
    for download in downloads.inOrder where !download.attempts.hasFailed && !download.isWhole {
      let plays = watches[download.key]?.play != nil
      let (isOpen, stored) = download.content.guarded.withLock { ($0.waiters.opens > 0, $0.held.stored.count) }
      guard isOpen || plays else { continue }
      if plays, download.lineUse.isBehind || download.lineUse.playouts.isShort(now) { isShort = true }
      guard plays || download.wish.rest else { continue }
      busy.insert(download.mirrors.host)
      needed = .clampedSum(needed, max(0, (download.size ?? 0) - stored))
    }
    return (busy, isShort, needed)
  }

  /// Whether all of a file has to be fetched, because it takes as long as what is left to play before it.
  private func takesAll(
    of download: Download, _ stored: ByteRangeSet, after played: Download, _ left: Double?
  ) -> Bool {
    guard let left, let size = download.size else { return false }
    if following[played.key]?.takesAll == true { return true }
    let line = lines.line(of: download)
    let host = download.mirrors.host
    let rate = lines.supply(line, of: host, besides: 0)?.rate ?? line.estimate.rate
    guard left < Double(size - stored.count) / max(rate, 1) else { return false }
    following[played.key]?.takesAll = true
    return true
  }

  private func ranges(of download: Download, _ probes: ProbeSets, rate: Double?) -> [ByteRange] {
    let learned = probes[download.content.kind]
    let tail = MediaKind.hasTail(download.content.kind) ? Planner.tailLength : 0
    let probe = ProbeSet(head: max(learned?.head ?? 0, Self.head), tail: max(learned?.tail ?? 0, tail))
    guard let size = download.size else { return [ByteRange(0, probe.head)] }
    let needs = download.generation.map { room.films.needs(of: $0) } ?? []
    return AheadGoal.ranges(size: size, probes: probe, film: film(of: download), needs: needs, rate: rate)
  }

  private func film(of download: Download) -> FilmIndex? {
    download.generation.flatMap { room.films.known(of: $0) }
  }

  // MARK: Indexes

  /// Has the keeper read the indexes of the files on, of which more is stored.
  private func readIndexes(_ now: Instant) {
    guard now >= nextIndexes else { return }
    nextIndexes = now.adding(seconds: Self.indexInterval)
    read = read.filter { wanted.contains($0.key) || following[$0.key] != nil }
    for key in wanted.union(following.keys).sorted() {
      guard let download = downloads[key], film(of: download)?.isExact != true else { continue }
      let stored = download.content.guarded.withLock { $0.held.stored.count }
      guard stored != read[key] ?? 0 else { continue }
      read[key] = stored
      let content = download.content
      room.keeper.post(.job { $0.readIndex(of: content) })
    }
  }
}

extension Download {
  /// The size of the resource in bytes; nil while it is not known.
  fileprivate var size: Int64? { content.guarded.withLock { $0.held.size } }
  /// The id of its generation.
  fileprivate var generation: Int64? { content.guarded.withLock { $0.held.generation?.id } }
}
