import Base
import Fetching
import Glibc
import Manifest
import TestSupport
import Testing

import Reading
@testable import Storing

/// The reading room over a store on the disk (or a fake one), a simulated origin and a simulated time, all on the
/// test's own thread.
final class Bench {
  let folder: String
  let time = Lock(Instant(nanoseconds: 1_000_000_000_000))
  let service = FakeService()
  /// The source of bytes beside the origin; nil: none.
  private let second: FakeSecondSource?
  var options = ReadingOptions()
  var entries: [ManifestEntry] = []
  private(set) var port = FakePort()
  private(set) var system: MediaFileSystem!
  private(set) var store: StoreAccess!
  /// Parts of a store on the disk.
  private(set) var catalog: Catalog!
  private(set) var library: LibraryFolder!
  private let fake: FakeStore?
  /// The room's threads, when they are this one.
  private(set) var threads: RoomThreads?
  /// Whether the room has its threads and the machine's time, instead of this thread and the simulated one.
  private let hasThreads: Bool
  private let trace: Trace?
  private var lastTicket: UInt = 0
  /// Called before each look of the room at the simulated time: what a test has happen in the middle of a call.
  let looks = Lock<(() -> Void)?>(nil)
  /// Called when the transfer thread is told something and has taken all before: the same where nothing looks at the
  /// time.
  let wakes = Lock<(() -> Void)?>(nil)
  /// Whether the keeper is held back, as by a slow sync: nothing is committed.
  var holdsKeeper = false
  /// When each ticket was issued and, once it was, answered.
  private(set) var issued: [Ticket: Instant] = [:]

  init(
    _ entries: [ManifestEntry], _ resources: [String: FakeResource], options: ReadingOptions = .testing,
    hasThreads: Bool = false, fake: FakeStore? = nil, second: FakeSecondSource? = nil
  ) throws {
    self.fake = fake
    self.second = second
    self.hasThreads = hasThreads
    trace = hasThreads ? nil : try Trace(time: time)
    service.trace = trace
    var template = Array("/tmp/mediafs-reading-XXXXXX".utf8CString)
    try #require(mkdtemp(&template) != nil)
    folder = String(decoding: template.dropLast().map { UInt8(bitPattern: $0) }, as: UTF8.self)
    self.options = options
    self.entries = entries
    service.resources = resources
    try start()
  }

  /// One file.
  convenience init(
    _ resource: FakeResource, options: ReadingOptions = .testing, checksum: Checksum? = nil, fake: FakeStore? = nil
  ) throws {
    var entry = Self.entry(resource.name, 1)
    entry.checksum = checksum
    try self.init([entry], [entry.urls[0]: resource], options: options, fake: fake)
  }

  deinit {
    service.client = nil
    threads = nil
    system = nil
    store = nil
    catalog = nil
    removeTree(folder)
  }

  static func entry(_ name: String, _ number: UInt64, urls: [String]? = nil) -> ManifestEntry {
    ManifestEntry(
      line: Int(number), urls: urls ?? ["http://origin/\(name)"], folder: [], name: name,
      key: ResourceKey(high: number, low: number))
  }

  var now: Instant { time.withLock { $0 } }

  /// Opens the store and mounts.
  func start() throws {
    if let fake {
      try fake.list(entries)
      store = fake.access
    } else {
      try openStore()
    }
    port = FakePort(trace)
    if hasThreads {
      system = try MediaFileSystem(store: store, options: options, wake: {})
      service.client = system.makeClient(port: port, service: service)
      system.start()
    } else {
      system = try .simulated(store, options, time: time, looks: looks, wakes: wakes)
      threads = RoomThreads(system, port: port, service: service, second: second)
      service.client = threads?.client
    }
  }

  /// Opens the store on the disk and imports the entries.
  private func openStore() throws {
    let opened = try StoreFolder.open(folder + "/store", mountpoint: "/nowhere", wait: 1)
    catalog = try Catalog.open(path: opened.catalogPath, access: .readWrite)
    library = try LibraryFolder(folder + "/library")
    store = StoreAccess(catalog: catalog, folder: opened, library: library)
    _ = try importEntries(nil)
  }

  private func importEntries(_ watcher: ImportWatcher?) throws(StoreError) -> ImportReport {
    var rest = entries[...]
    return try catalog.importBatches(
      fingerprint: [1], strict: true, report: { _ in }, watcher: watcher
    ) { () throws(StoreError) in
      if rest.isEmpty { return nil }
      var batch = ImportBatch()
      while let entry = rest.popFirst() { batch.append(.entry(entry)) }
      return batch
    }
  }

  /// The list has these entries from now on, and the room is told.
  func list(_ entries: [ManifestEntry]) throws {
    self.entries = entries
    let watcher = ImportWatcher(
      beforeCommit: { _ in }, committed: { [system] in system?.listChanged($0.resources) })
    _ = try importEntries(watcher)
  }

  /// Ends the server: tidily, or as `kill -9` does (the catalog forgets nothing that was committed).
  func stop(killed: Bool = false) {
    trace?.told(killed ? "kill" : "end")
    if killed {
      move(0)
      move(0)
      service.client = nil
    }
    service.stop()
    service.client = nil
    threads?.end(killed: killed)
    threads = nil
    system = nil
    store = nil
    catalog = nil
  }

  func restart(killed: Bool = false) throws {
    stop(killed: killed)
    try start()
    system.resume()
  }

  /// Lets `seconds` go by.
  func run(_ seconds: Double, step: Double = 0.01) {
    var left = seconds
    while left > 0 {
      move(step)
      left -= step
    }
  }

  /// One turn of every thread, `step` seconds later. Without `finishing` the finisher is held back, as by a long
  /// checksum.
  func move(_ step: Double, finishing: Bool = true) {
    let now = time.withLock { time in
      time = time.adding(seconds: step)
      return time
    }
    service.move(to: now)
    if !holdsKeeper { threads?.turnKeeper() }
    while finishing, threads?.turnFinisher() == true {}
  }

  /// Lets time go by until `condition` holds; false when it does not within `seconds` of it.
  func run(until seconds: Double, step: Double = 0.01, _ condition: () -> Bool) -> Bool {
    var left = seconds
    while !condition() {
      if left <= 0 { return false }
      run(step, step: step)
      left -= step
    }
    return true
  }

  // MARK: The kernel

  func node(_ name: String) throws -> Node {
    let bytes = Array(name.utf8)
    return try #require(try bytes.withUnsafeBufferPointer { try store.tree.lookup(parent: rootInode, name: $0) })
  }

  func inode(_ name: String) throws -> Inode { try node(name).inode }

  func ticket(_ what: String) -> Ticket {
    lastTicket += 1
    let ticket = Ticket(rawValue: lastTicket)
    issued[ticket] = now
    trace?.called(ticket, what)
    return ticket
  }

  /// The kernel interrupts a parked request; as the mount does, it is answered here when the room gives it up.
  func interrupt(_ ticket: Ticket, isKilled: Bool) {
    if system.interrupt(ticket, isKilled: isKilled) { port.put(ticket, .error(.interrupted)) }
  }

  @discardableResult
  func stat(_ inode: Inode, process: Int32 = 0) -> Ticket {
    let ticket = ticket("stat \(inode)")
    switch system.attributes(of: inode, ticket: ticket, caller: Caller(process: process)) {
    case .now(let attributes): port.put(ticket, .attributes(attributes))
    case .failed(let error): port.put(ticket, .error(error))
    case .parked: break
    }
    return ticket
  }

  @discardableResult
  func open(_ inode: Inode, process: Int32 = 0) -> Ticket {
    let ticket = ticket("open \(inode)")
    switch system.open(inode, ticket: ticket, caller: Caller(process: process)) {
    case .now(let mode): port.put(ticket, .opened(directIO: mode.directIO))
    case .failed(let error): port.put(ticket, .error(error))
    case .parked: break
    }
    return ticket
  }

  @discardableResult
  func read(_ inode: Inode, _ offset: Int64, _ count: Int, process: Int32 = 0) -> Ticket {
    let ticket = ticket("read \(inode) at \(offset), \(count) bytes")
    var bytes = [UInt8](repeating: 0xEE, count: count)
    let answer = bytes.withUnsafeMutableBytes {
      system.read(inode, at: offset, into: $0, ticket: ticket, caller: Caller(process: process))
    }
    switch answer {
    case .now(let count): port.put(ticket, .data(Array(bytes[..<count])))
    case .failed(let error): port.put(ticket, .error(error))
    case .parked: break
    }
    return ticket
  }

  /// The answer to `ticket`, once it is there; nil when it does not come within `seconds`.
  func answer(_ ticket: Ticket, within seconds: Double = 60, step: Double = 0.01) -> Reply? {
    _ = run(until: seconds, step: step) { port.reply(to: ticket) != nil }
    return port.reply(to: ticket)
  }

  /// Opens `name` and waits for it.
  func opened(_ name: String) throws -> Inode {
    let inode = try inode(name)
    let reply = answer(open(inode))
    guard case .opened = reply else {
      Issue.record("\(name) was not opened: \(String(describing: reply))")
      throw Errno.io
    }
    return inode
  }

  /// Reads and compares with one version of the resource.
  func expectBytes(
    _ inode: Inode, _ offset: Int64, _ count: Int, of name: String, version: UInt64 = 1, within seconds: Double = 60,
    sourceLocation: SourceLocation = #_sourceLocation
  ) {
    let reply = answer(read(inode, offset, count), within: seconds)
    guard case .data(let bytes)? = reply else {
      Issue.record("a read at \(offset) ended with \(String(describing: reply))", sourceLocation: sourceLocation)
      return
    }
    #expect(bytes.count == count, sourceLocation: sourceLocation)
    let wrong = Pattern.check(bytes, name: name, generation: version, offset: offset)
    #expect(wrong == nil, "not the bytes of version \(version)", sourceLocation: sourceLocation)
  }

  /// What the room, or else the catalog, says is stored of a file.
  func stored(_ inode: Inode, sourceLocation: SourceLocation = #_sourceLocation) throws -> ByteRangeSet {
    let node = try #require(try store.tree.node(inode), sourceLocation: sourceLocation)
    return try system.reports.report(on: node).ranges
  }

  /// What `status` says a file is.
  func state(_ name: String) throws -> FileReport.State { try system.reports.report(on: node(name)).state }

  /// The generation that the catalog has of an entry.
  func generation(_ name: String, sourceLocation: SourceLocation = #_sourceLocation) throws -> GenerationRecord {
    let key = try node(name).key
    return try #require(try store.generations.current(of: key), sourceLocation: sourceLocation)
  }

  func isComplete(_ name: String) -> Bool {
    guard let node = try? node(name) else { return false }
    return (try? store.generations.current(of: node.key))?.state == .complete
  }
}

extension ReadingOptions {
  /// No bounds on the disk, so that the machine a test runs on does not matter.
  static var testing: ReadingOptions {
    var options = ReadingOptions()
    options.minimumFree = 0
    return options
  }
}

/// Removes a folder and all in it.
func removeTree(_ path: String) {
  if let folder = opendir(path) {
    while let item = readdir(folder) {
      let name = withUnsafePointer(to: &item.pointee.d_name) { pointer in
        pointer.withMemoryRebound(to: CChar.self, capacity: 256) { String(cString: $0) }
      }
      if name == "." || name == ".." { continue }
      let child = path + "/" + name
      if unlink(child) != 0 { removeTree(child) }
    }
    closedir(folder)
  }
  rmdir(path)
}
