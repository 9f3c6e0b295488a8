import Base
import Reading
import Sharing
import Storing

/// The numbers of a server in Prometheus' text format (docs/CONTROL.md, "Metrics").
///
/// No label has a path, a URL or the name of a host: a list may have a million of them, they may be private, and each
/// value of a label is a series that Prometheus keeps. `mediafs status` names files and hosts.
struct MetricsText {
  private var text = ""

  /// What the numbers are of.
  struct Facts {
    var room: RoomMetrics
    var cache: StoredSums
    /// Files of the list.
    var files: Int64
    /// When this server began, in seconds since 1970.
    var startedAt: Int64
    /// Whether the mount had no server before this one.
    var isFirst: Bool
    /// Bytes that its process has in memory.
    var residentBytes: Int64
    /// Bytes that are free for it on the store's disk; nil if the disk does not tell.
    var freeBytes: Int64?
    /// What is told of the fleet; nil: the mount shares with nobody.
    var share: MemberReport?
  }

  private enum Kind: String { case counter, gauge, histogram }

  static func make(_ facts: Facts) -> String {
    var text = MetricsText()
    text.describeServer(facts)
    text.describeReads(facts.room)
    text.describeOrigins(facts.room)
    text.describeStore(facts)
    if let share = facts.share { text.describe(share) }
    return text.text
  }

  private mutating func describe(_ share: MemberReport) {
    single("mediafs_share_up", .gauge, "1 while the fleet's store is used, else 0.", share.state == .up ? 1 : 0)
    single(
      "mediafs_share_leases", .gauge, "Segments that this mount fetches from origins for all.",
      Double(share.leases.count))
    single("mediafs_share_nodes", .gauge, "Mounts of the fleet that were seen today.", Double(share.nodes))
    single(
      "mediafs_share_waiting_bytes", .gauge, "Bytes that are to go up to the fleet's store.", Double(share.waitingBytes)
    )
    single(
      "mediafs_share_waiting_pointers", .gauge, "Files of which the fleet's store is to be told what they are.",
      Double(share.waitingPointers))
    single(
      "mediafs_share_dropped_blocks_total", .counter, "Blocks that did not go up at first, as too many waited.",
      Double(share.droppedBlocks))
  }

  private mutating func describeServer(_ facts: Facts) {
    begin("mediafs_build_info", .gauge, "The version of the server's program.")
    put("mediafs_build_info", ["version": mediafsVersion], 1)
    single(
      "mediafs_start_time_seconds", .gauge, "When this server began, in seconds since 1970: counters began at 0 then.",
      Double(facts.startedAt))
    single(
      "mediafs_server_replaced", .gauge, "1 if the mount had another server before this one, else 0.",
      facts.isFirst ? 0 : 1)
    single(
      "mediafs_resident_memory_bytes", .gauge, "Bytes of memory that the server has.", Double(facts.residentBytes))
    single("mediafs_list_files", .gauge, "Files that the mount lists.", Double(facts.files))
    single("mediafs_active_files", .gauge, "Files that are open, waited for or fetched.", Double(facts.room.files))
    single("mediafs_open_handles", .gauge, "Handles that programs have open.", Double(facts.room.opens))
  }

  private mutating func describeReads(_ room: RoomMetrics) {
    let labels = room.reads.map { reads -> KeyValuePairs<String, String> in
      ["source": reads.source.label, "class": reads.audience.label]
    }
    begin(
      "mediafs_read_bytes_total", .counter,
      "Bytes that programs read through the server, by where they came from; the kernel reads most copies by itself.")
    for (reads, labels) in zip(room.reads, labels) { put("mediafs_read_bytes_total", labels, Double(reads.bytes)) }
    begin("mediafs_reads_total", .counter, "Reads that the server answered with bytes.")
    for (reads, labels) in zip(room.reads, labels) { put("mediafs_reads_total", labels, Double(reads.count)) }
    begin("mediafs_read_errors_total", .counter, "Reads that the server answered with an error.")
    for (kind, count) in room.readErrors { put("mediafs_read_errors_total", ["error": kind.label], Double(count)) }
    single(
      "mediafs_reader_stall_seconds_total", .counter,
      "Seconds in which a file had a read that waited for its origin, summed over the files.", room.stalledSeconds)
    single("mediafs_waiting_reads", .gauge, "Reads that wait for their origin now.", Double(room.waitingReads))
    single(
      "mediafs_waiting_lookups", .gauge, "Stats and opens that wait for the length of a file now.",
      Double(room.waitingProbes))
  }

  private mutating func describeOrigins(_ room: RoomMetrics) {
    begin("mediafs_origin_bytes_total", .counter, "Bytes of bodies that origins sent, by whom they were asked for.")
    for requests in room.requests {
      put("mediafs_origin_bytes_total", ["class": requests.audience.label], Double(requests.bytes))
    }
    begin("mediafs_origin_requests_total", .counter, "Requests to origins, by whom they are for.")
    for requests in room.requests {
      put("mediafs_origin_requests_total", ["class": requests.audience.label], Double(requests.count))
    }
    begin("mediafs_origin_errors_total", .counter, "Requests to origins that failed, or whose answer was of no use.")
    for (kind, count) in room.requestErrors { put("mediafs_origin_errors_total", ["kind": "\(kind)"], Double(count)) }
    single(
      "mediafs_duplicate_bytes_total", .counter, "Bytes that origins sent although they were stored.",
      Double(room.duplicateBytes))
    single(
      "mediafs_shared_bytes_total", .counter, "Bytes that the fleet's store sent (--share).", Double(room.sharedBytes))
    single("mediafs_origin_transfers", .gauge, "Requests to origins in flight.", Double(room.inFlight))
    single(
      "mediafs_origin_connections", .gauge, "Connections that are open, as far as that is known.",
      Double(room.connections))
    single("mediafs_origin_hosts", .gauge, "Hosts that this server asked.", Double(room.hosts))
    single(
      "mediafs_origin_hosts_silent", .gauge, "Those of them that did not answer the last request.",
      Double(room.silentHosts))
    let name = "mediafs_origin_first_byte_seconds"
    begin(name, .histogram, "Seconds from a request to the first byte of its answer.")
    var sum: UInt64 = 0
    for (index, count) in room.firstBytes.enumerated() {
      sum += count
      let bounds = RoomMetrics.firstByteBounds
      put("\(name)_bucket", ["le": index < bounds.count ? Self.number(bounds[index]) : "+Inf"], Double(sum))
    }
    put("\(name)_sum", [:], room.firstByteSeconds)
    put("\(name)_count", [:], Double(sum))
  }

  private mutating func describeStore(_ facts: Facts) {
    let states = [("partial", facts.cache.partial), ("complete", facts.cache.complete)]
    begin("mediafs_cache_bytes", .gauge, "Bytes that are stored: of unfinished files, and of complete copies.")
    for (state, sums) in states { put("mediafs_cache_bytes", ["state": state], Double(sums.bytes)) }
    begin("mediafs_cache_files", .gauge, "Files of which bytes are stored.")
    for (state, sums) in states { put("mediafs_cache_files", ["state": state], Double(sums.files)) }
    if let limit = facts.room.limit {
      single("mediafs_cache_limit_bytes", .gauge, "The limit on stored bytes (--max-size).", Double(limit))
    }
    if let free = facts.freeBytes {
      single(
        "mediafs_store_free_bytes", .gauge, "Bytes that are free for the server on the store's disk.", Double(free))
    }
    single(
      "mediafs_store_full", .gauge, "1 while the store or its disk is at its limit, else 0.",
      facts.room.hasSpace ? 0 : 1)
    single("mediafs_evictions_total", .counter, "Files whose stored bytes made room.", Double(facts.room.evictions))
    single("mediafs_evicted_bytes_total", .counter, "Stored bytes that made room.", Double(facts.room.evictedBytes))
    single(
      "mediafs_completed_files_total", .counter, "Files that were completed and verified.",
      Double(facts.room.completions))
    single(
      "mediafs_changed_files_total", .counter, "Files of which the origin had another version.",
      Double(facts.room.versions))
  }

  // MARK: The format

  private mutating func begin(_ name: String, _ kind: Kind, _ help: String) {
    text += "# HELP \(name) \(help)\n# TYPE \(name) \(kind.rawValue)\n"
  }

  private mutating func single(_ name: String, _ kind: Kind, _ help: String, _ value: Double) {
    begin(name, kind, help)
    put(name, [:], value)
  }

  private mutating func put(_ name: String, _ labels: KeyValuePairs<String, String>, _ value: Double) {
    let list = labels.map { "\($0.key)=\"\($0.value)\"" }.joined(separator: ",")
    text += name + (list.isEmpty ? "" : "{\(list)}") + " \(Self.number(value))\n"
  }

  /// Whole numbers without a fraction.
  private static func number(_ value: Double) -> String {
    value == value.rounded() && abs(value) < 9e15 ? "\(Int64(value))" : "\(value)"
  }
}

extension ReadSource {
  fileprivate var label: String {
    switch self {
    case .store: "store"
    case .copy: "copy"
    case .memory: "memory"
    case .origin: "origin"
    case .tier: "tier"
    }
  }
}

extension Audience {
  /// Its word, for people and programs.
  var label: String {
    switch self {
    case .reader: "reader"
    case .scan: "scan"
    case .continuation: "continuation"
    }
  }
}

extension ReadError {
  fileprivate var label: String {
    switch self {
    case .failed: "EIO"
    case .denied: "EACCES"
    case .timedOut: "ETIMEDOUT"
    case .stale: "ESTALE"
    case .other: "other"
    }
  }
}
