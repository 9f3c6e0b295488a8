import Base
import Control
import Glibc
import Manifest
import Reading
import Sharing

extension MountFacts {
  /// The options that say what is downloaded and kept, in the order in which people are told.
  private static let told = [
    "max-size", "evict", "max-age", "min-free", "continue", "next", "limit-rate", "max-connections", "timeout", "fresh",
  ]

  /// What a server was started with.
  init(_ request: MountRequest, _ store: OpenedStore) {
    let untouched = MountRequest(mountpoint: "", manifest: "")
    let settings = Self.told.compactMap { MountOption.named($0) }.map { option in
      let (value, standard) = (option.encoded(request).first, option.encoded(untouched).first)
      return Setting(name: option.name, value: value, source: value == standard ? .default : .option)
    }
    self.init(
      store: store.folder.path, library: store.library.path,
      list: request.readsStandardInput ? nil : request.listName,
      log: request.log.file ?? (request.foreground ? nil : store.folder.path + "/mediafs.log"),
      metrics: request.metricsFile, settings: settings)
    guard let index = self.settings.firstIndex(where: { $0.name == "max-size" }), request.storage.maxSize == nil,
      store.maximumSize != .max
    else { return }
    self.settings[index].value = "\(store.maximumSize)"  // the store's own
  }
}

extension MountFacts {
  /// What `status` says of the fleet. `reads`: what programs read through this server. `path`: what a file is called;
  /// nil: it is not in memory any more.
  static func words(
    of share: MemberReport, reads: [RoomMetrics.Reads], now: Instant, path: (ResourceKey) -> String?
  ) -> String {
    let state =
      switch share.state {
      case .asking(""): "it has not answered yet, and files come from their origins"
      case .asking(let why): "\(why), and files come from their origins"
      case .up: "up"
      case .down(let since, ""):
        "it has not answered for \(Int(now.seconds(since: since))) s, and files come from their origins"
      case .down(let since, let why):
        "not used for \(Int(now.seconds(since: since))) s, and files come from their origins: \(why)"
      case .refused(let why): "not used: \(why)"
      }
    var words = [state]
    if share.isReadOnly { words.append("only read") }
    if !share.lacks.isEmpty { words.append("best effort, as it does not keep the conditions of writes") }
    if share.isInDoubt { words.append("best effort, until it shows whether it keeps the conditions of writes") }
    if share.state == .up {
      if !share.isReadOnly { words.append("\(share.nodes) \(share.nodes == 1 ? "node" : "nodes") today") }
      if !share.leases.isEmpty { words.append(leases(share.leases, path)) }
      if share.fullUntil != nil { words.append("it has no room") }
    }
    if share.waitingBytes > 0 {
      words.append("\((share.waitingBytes + 1_048_575) >> 20) MiB to be stored")
      if share.state == .up, !share.refusal.isEmpty { words.append("which it does not take now (\(share.refusal))") }
    }
    if share.waitingPointers > 0 { words.append("\(share.waitingPointers) files to be announced there") }
    if let read = sources(reads) { words.append(read) }
    return "\(share.place): " + words.joined(separator: ", ")
  }

  /// Where the bytes came from that programs read; nil: they read none.
  private static func sources(_ reads: [RoomMetrics.Reads]) -> String? {
    func sum(_ sources: ReadSource...) -> UInt64 {
      reads.reduce(0) { sources.contains($1.source) ? $0 + $1.bytes : $0 }
    }
    let told = [
      (sum(.store, .copy, .memory), "stored here"), (sum(.tier), "from there"), (sum(.origin), "from origins"),
    ].filter { $0.0 > 0 }.map { "\(ByteSize.shown(Int64(clamping: $0.0))) \($0.1)" }
    return told.isEmpty ? nil : "programs read " + told.joined(separator: " and ")
  }

  /// The leases in hand: the first ones by file and mebibytes.
  private static func leases(_ leases: [MemberReport.HeldLease], _ path: (ResourceKey) -> String?) -> String {
    let most = 3
    var told = leases.prefix(most).map { lease in
      let (start, end) = (lease.range.start >> 20, (lease.range.end + 1_048_575) >> 20)
      return "\(start) to \(end) MiB of \(path(lease.key) ?? "a closed file")"
    }
    if leases.count > most { told.append("\(leases.count - most) more") }
    return "\(leases.count == 1 ? "lease" : "\(leases.count) leases") in hand (\(told.joined(separator: ", ")))"
  }
}

extension FileStory {
  /// Converts what the reading room tells for the protocol, in which ages stand for instants.
  init(_ story: FileReport.Story, store: String, library: String, isLive: Bool) {
    let now = Instant.now
    self.init(line: Int64(story.line))
    origins = story.origins.prefix(ControlLimits.origins).map {
      Origin(host: $0.host, asked: $0.isAsked, refusal: $0.refusal)
    }
    type = story.mediaType
    etag = story.validators?.etag.map { (story.validators?.etagIsWeak == true ? "W/" : "") + $0 }
    lastModified = story.validators?.lastModified
    servesRanges = story.servesRanges
    checkedAge = story.checkedAt.map { Int64(max(0, now.seconds(since: $0))) }
    errors = story.errors.prefix(ControlLimits.errors).map {
      PastError(message: $0.message, age: Int64(max(0, now.seconds(since: $0.at))))
    }
    partial = story.partial.map { "\(store)/partial/\($0)" }
    copy = story.copy.map { "\(library)/\($0)" }
    goesOn =
      switch story.goesOn {
      case .asked: .fetch
      case .played: .played
      case nil: nil
      }
    guard isLive else { return }
    var fetched = Fetched()
    (fetched.reader, fetched.scan) = (story.fetched.reader, story.fetched.scan)
    fetched.continuation = story.fetched.continuation
    fetched.sources = story.fetched.hosts.prefix(ControlLimits.origins).map {
      Source(host: Log.redacted(url: $0.host), bytes: $0.bytes)
    }
    self.fetched = fetched
  }
}
