import Base
import Glibc
import Manifest
import Testing

import Reading
@testable import Storing

/// A store in memory: what the reading room asks of any store, without a catalog, a folder or a library.
final class FakeStore: Sendable {
  /// Bytes that can be read like a file: one without a name.
  fileprivate final class Memory: Sendable {
    let descriptor: FileDescriptor
    let written = Lock(ByteRangeSet())

    init() throws(StoreError) {
      var template = Array("/tmp/mediafs-fake-XXXXXX".utf8CString)
      descriptor = try calling("cannot make a file without a name") { () throws(Errno) in
        FileDescriptor(owning: try retrying { mkstemp(&template) })
      }
      unlink(template)
    }
  }

  private struct State {
    var lastID: Int64 = 1000
    var entries: [EntryRecord] = []
    var generations: [Int64: GenerationRecord] = [:]
    var old: [Inode: (Node, generation: Int64)] = [:]
    var pins: Set<ResourceKey> = []
    var rules = Rules()
    var problems: [ResourceKey: NotedProblem] = [:]
    var hosts: [String: HostNote] = [:]
    var hostNotes = 0
    var kinds: [String: KindNote] = [:]
    var used: [Int64: Int64] = [:]
    var intents: [Int64: String] = [:]
    var partials: [Int64: Memory] = [:]
    var copies: [String: (copy: LibraryCopy, memory: Memory)] = [:]
    var isOnOtherFilesystem = false
    var refusesChanges = false
    var refusesPartials: Errno?
    var refusesCopies = false
    var refusesLookUps = false
    var lookUps = 0

    func current(_ key: ResourceKey) -> GenerationRecord? {
      generations.values.first { $0.key == key && $0.state != .superseded }
    }
  }
  private let state = Lock(State())

  var access: StoreAccess {
    StoreAccess(tree: self, generations: self, notes: self, changes: self, partials: self, copies: self)
  }

  /// Lists files in the root, once.
  func list(_ entries: [ManifestEntry]) throws {
    state.withLock { state in
      guard state.entries.isEmpty else { return }
      for (number, entry) in zip(Int64(2)..., entries) {
        let node = Node(
          entry: number, inode: Inode(number), parent: rootInode, kind: .file, name: entry.name, key: entry.key)
        state.entries.append(EntryRecord(node: node, path: node.name, source: entry))
      }
    }
  }

  // MARK: What a test sees and does

  /// Whether the completed copies are on another filesystem than the partial files.
  var isOnOtherFilesystem: Bool {
    get { state.withLock { $0.isOnOtherFilesystem } }
    set { state.withLock { $0.isOnOtherFilesystem = newValue } }
  }
  /// From here on nothing can be remembered, or again.
  func refuseChanges(_ refuses: Bool) { state.withLock { $0.refusesChanges = refuses } }
  /// How often somebody looked up what is stored of files with a strong tag.
  var lookUps: Int { state.withLock { $0.lookUps } }
  /// From here on neither that nor what is unfinished can be looked up, or again.
  func refuseLookUps(_ refuses: Bool) { state.withLock { $0.refusesLookUps = refuses } }
  /// From here on no partial file can be opened, or again.
  func refusePartials(_ refuses: Bool, _ error: Errno = .accessDenied) {
    state.withLock { $0.refusesPartials = refuses ? error : nil }
  }
  /// From here on no completed copy can be opened, or again.
  func refuseCopies(_ refuses: Bool) { state.withLock { $0.refusesCopies = refuses } }
  /// The paths that were noted before a file was placed.
  var intents: [String] { state.withLock { Array($0.intents.values) } }
  /// How often a host was noted.
  var hostNotes: Int { state.withLock { $0.hostNotes } }
  /// The generations that have a partial file.
  var partialIDs: [Int64] { state.withLock { $0.partials.keys.sorted() } }
  /// The bytes of each completed copy.
  func copies() throws -> [String: [UInt8]] {
    try state.withLock { $0.copies.mapValues { ($0.memory, Int($0.copy.size)) } }.mapValues { memory, size in
      try [UInt8](unsafeUninitializedCapacity: size) { $1 = try memory.descriptor.readFully(at: 0, into: .init($0)) }
    }
  }
  /// A user writes over the beginning of a copy.
  func modifyCopy(_ path: String, _ bytes: [UInt8]) throws {
    let memory = try #require(
      state.withLock { state in
        state.copies[path]?.copy.modified += 1
        return state.copies[path]?.memory
      })
    try bytes.withUnsafeBytes { try memory.descriptor.writeFully($0, at: 0) }
  }
}

extension FakeStore: StoreTree {
  private func shown(_ record: EntryRecord, _ state: State) -> Node {
    var node = record.node
    let generation = state.current(node.key)
    node.size = generation?.size
    node.modified = generation?.validators.lastModified
    return node
  }

  private func first(_ isIt: (Node) -> Bool) -> EntryRecord? {
    state.withLock { state in
      guard var record = state.entries.first(where: { isIt($0.node) }) else { return nil }
      record.node = shown(record, state)
      return record
    }
  }

  private var root: Node {
    Node(
      entry: Int64(rootInode), inode: rootInode, parent: rootInode, kind: .folder, name: "",
      key: ResourceKey(high: 0, low: 0))
  }

  func lookup(parent: Inode, name: UnsafeBufferPointer<UInt8>) -> Node? {
    first { $0.parent == parent && $0.name.utf8.elementsEqual(name) }?.node
  }
  func node(_ inode: Inode) -> Node? { inode == rootInode ? root : first { $0.inode == inode }?.node }
  func list(_ folder: Inode, after cookie: Int64, limit: Int) -> [Node] {
    state.withLock { state in
      let behind = state.entries.filter { $0.node.parent == folder && $0.node.entry > cookie }
      return behind.prefix(limit).map { shown($0, state) }
    }
  }
  func parent(of folder: Inode) -> Inode { rootInode }
  func path(of inode: Inode) -> String? { inode == rootInode ? "" : first { $0.inode == inode }?.path }
  func entry(_ inode: Inode) -> EntryRecord? { first { $0.inode == inode } }
  func entries(of key: ResourceKey) -> [EntryRecord] {
    state.withLock { state in state.entries.filter { $0.node.key == key } }
  }
  func formerPaths(of key: ResourceKey) -> [String] { [] }
  func find(path: String) -> Node? { path.isEmpty ? root : first { $0.name == path }?.node }
  func survey(_ folder: Inode, after cookie: Int64, limit: Int) -> [SurveyedNode] {
    list(folder, after: cookie, limit: limit).map { SurveyedNode(node: $0, isKnown: true) }
  }
  func counts() -> CatalogCounts {
    let count = state.withLock { Int64($0.entries.count) }
    return CatalogCounts(names: count, files: count)
  }
}

extension FakeStore: StoreGenerations, StoreNotes {
  func current(of key: ResourceKey) -> GenerationRecord? { state.withLock { $0.current(key) } }
  func superseded(inode: Inode) -> (Node, GenerationRecord)? {
    state.withLock { state in
      guard let (node, id) = state.old[inode], let generation = state.generations[id] else { return nil }
      return (node, generation)
    }
  }
  func continuing(limit: Int, after: Int64) throws(StoreError) -> [GenerationRecord] {
    let all = try state.withLock { (state) throws(StoreError) in
      if state.refusesLookUps { throw StoreError(kind: .io(.io), message: "the fake store refuses a look") }
      return state.generations.values.filter { $0.continues && $0.id > after }
    }
    return Array(all.sorted { $0.id < $1.id }.prefix(limit))
  }
  func strong(limit: Int, after: Int64) throws(StoreError) -> [GenerationRecord] {
    let all = try state.withLock { (state) throws(StoreError) in
      state.lookUps += 1
      if state.refusesLookUps { throw StoreError(kind: .io(.io), message: "the fake store refuses a look") }
      return state.generations.values.filter {
        $0.id > after && $0.state != .superseded && $0.validators.strongETag != nil && !$0.stored.isEmpty
      }
    }
    return Array(all.sorted { $0.id < $1.id }.prefix(limit))
  }
  func partialsByUse() -> [StoredPartial] {
    let all = state.withLock { state in
      state.generations.values.filter { $0.state == .partial }.map {
        StoredPartial(
          id: $0.id, key: $0.key, size: $0.size, stored: $0.stored, synced: $0.synced, usedAt: state.used[$0.id] ?? 0,
          continues: $0.continues)
      }
    }
    return all.sorted { $0.usedAt < $1.usedAt }
  }
  func copyBytes(of id: Int64?) -> Int64 {
    state.withLock { $0.copies.values.reduce(0) { $0 + $1.copy.size } }
  }
  func copies(limit: Int, after last: CountedCopy?, mayGo: Bool) -> [CountedCopy] {
    if last != nil { return [] }
    return state.withLock { state in
      state.generations.values.compactMap { known in
        known.copy.map { CountedCopy(id: known.id, key: known.key, copy: $0, usedAt: 0) }
      }
    }
  }
  func isPinned(_ key: ResourceKey) -> Bool { state.withLock { $0.pins.contains(key) } }
  func pins(limit: Int, after key: ResourceKey?) -> [ResourceKey] {
    func order(_ key: ResourceKey) -> (UInt64, UInt64) { (key.high, key.low) }
    let all = state.withLock { $0.pins }.filter { pin in key.map { order($0) < order(pin) } ?? true }
    return Array(all.sorted { order($0) < order($1) }.prefix(limit))
  }
  func rules() -> Rules { state.withLock { $0.rules } }
  func problem(of key: ResourceKey) -> NotedProblem? { state.withLock { $0.problems[key] } }
  func hosts() -> [HostNote] { state.withLock { Array($0.hosts.values) } }
  func kinds() -> [KindNote] { state.withLock { Array($0.kinds.values) } }
}

extension FakeStore: StoreChanges {
  private func change<Value>(_ body: (inout State) throws(StoreError) -> Value) throws(StoreError) -> Value {
    try state.withLock { (state) throws(StoreError) in
      if state.refusesChanges { throw StoreError(kind: .io(.io), message: "the fake store refuses changes") }
      return try body(&state)
    }
  }

  func nextID() throws(StoreError) -> Int64 {
    try change { state in
      state.lastID += 1
      return state.lastID
    }
  }

  func apply(_ changes: [CatalogChange], durably: Bool) throws(StoreError) {
    try change { (state) throws(StoreError) in
      var next = state  // all of them or none
      for change in changes { try Self.apply(change, to: &next) }
      state = next
    }
  }

  private static func apply(_ change: CatalogChange, to state: inout State) throws(StoreError) {
    switch change {
    case .learned(let record):
      if let current = state.current(record.key)?.id, current != record.id {
        if current > record.id { return }
        throw StoreError(kind: .invalid, message: "generation \(record.id) is not the current one")
      }
      var known = state.generations[record.id] ?? record
      (known.size, known.validators, known.mediaType) = (record.size, record.validators, record.mediaType)
      state.generations[record.id] = known
    case .extents(let id, let stored, let synced), .lost(let id, let stored, let synced):
      if case .extents = change, let known = state.generations[id], known.synced.count == known.size { break }
      state.generations[id]?.stored = stored
      state.generations[id]?.synced = synced
    case .continues(let id, let continues): state.generations[id]?.continues = continues
    case .came(let id, let mirror): state.generations[id]?.mirror = mirror
    case .mixed(let id): state.generations[id]?.isMixed = true
    case .pinned(let key, true): state.pins.insert(key)
    case .pinned(let key, false): state.pins.remove(key)
    case .rule(.set(let rule)): state.rules.set(rule)
    case .rule(.remove(let subject, let pattern)): state.rules.remove(subject, pattern)
    case .setting: break  // the room never asks for them
    case .used(let id, let time): state.used[id] = time
    case .usedBlocks: break
    case .problem(let key, let message):
      state.problems[key] = message.map { NotedProblem(message: $0, at: Int64(time(nil))) }
    case .host(let note):
      state.hosts[note.name] = note
      state.hostNotes += 1
    case .kind(let note): state.kinds[note.name] = note
    case .gainedExtension(let key, let ending):
      for index in state.entries.indices where state.entries[index].node.key == key {
        state.entries[index].node.name += "." + ending
      }
    case .placing(let id, let path): state.intents[id] = path
    case .placed(let id, let copy, _):
      let all = ByteRangeSet(ByteRange(0, copy.size))
      state.generations[id]?.state = .complete
      state.generations[id]?.continues = false
      state.generations[id]?.isMixed = false
      state.generations[id]?.copy = copy
      state.generations[id]?.stored = all
      state.generations[id]?.synced = all
    case .dropped(let id):
      if state.generations[id]?.state == .complete { state.generations[id]?.state = .partial }
      state.generations[id]?.continues = false
      state.generations[id]?.isMixed = false
      state.generations[id]?.copy = nil
      state.generations[id]?.stored = ByteRangeSet()
      state.generations[id]?.synced = ByteRangeSet()
    case .forgotten(let id):
      state.generations[id] = nil
      state.old = state.old.filter { $0.value.generation != id }
    }
  }

  func supersede(_ old: GenerationRecord, by new: GenerationRecord) throws(StoreError) -> [Renumbered] {
    try change { state in
      let former = state.current(old.key) ?? old
      state.generations[former.id] = former
      state.generations[former.id]?.state = .superseded
      state.generations[new.id] = new
      return state.entries.indices.filter { state.entries[$0].node.key == old.key }.map { index in
        Self.renumber(index, leaving: former.id, &state)
      }
    }
  }

  func renumber(_ inode: Inode, of key: ResourceKey) throws(StoreError) -> Renumbered? {
    try change { state in
      guard let current = state.current(key)?.id else { return nil }
      let index = state.entries.firstIndex { $0.node.key == key && $0.node.inode == inode }
      return index.map { Self.renumber($0, leaving: current, &state) }
    }
  }

  private static func renumber(_ index: Int, leaving generation: Int64, _ state: inout State) -> Renumbered {
    let node = state.entries[index].node
    state.lastID += 1
    state.old[node.inode] = (node, generation)
    state.entries[index].node.inode = Inode(state.lastID)
    return Renumbered(parent: node.parent, name: node.name, old: node.inode, new: Inode(state.lastID))
  }
}

extension FakeStore: PartialFiles {
  func open(_ id: Int64, create: Bool) throws(StoreError) -> any OpenPartialFile {
    let memory = try state.withLock { (state) throws(StoreError) -> Memory in
      if let error = state.refusesPartials { throw .file(error, "the fake store refuses partial files") }
      if let there = state.partials[id] { return there }
      guard create else { throw StoreError(kind: .io(.notFound), message: "no partial file \(id)") }
      let new = try Memory()
      state.partials[id] = new
      return new
    }
    return FakePartialFile(id: id, memory, of: self)
  }

  func remove(_ id: Int64) -> Int64 {
    let memory = state.withLock { $0.partials.removeValue(forKey: id) }
    return memory.map { $0.written.withLock { $0.count } } ?? 0
  }
  func allocated() -> Int64 {
    state.withLock { Array($0.partials.values) }.reduce(0) { $0 + $1.written.withLock { $0.count } }
  }

  func space() throws(StoreError) -> StoreSpace {
    let memory = try Memory()
    return try calling("cannot measure the memory") { () throws(Errno) in
      try StoreSpace.measure(descriptor: memory.descriptor.rawValue)
    }
  }

  fileprivate func isMoved(_ id: Int64, _ memory: Memory) -> Bool {
    state.withLock { state in
      state.partials[id] !== memory && state.copies.values.contains { $0.memory === memory }
    }
  }

  fileprivate func place(
    _ id: Int64, _ memory: Memory, as path: String, _ size: Int64, _ modified: Int64?
  ) -> LibraryCopy? {
    state.withLock { state in
      if state.copies[path] != nil { return nil }
      if !state.isOnOtherFilesystem { state.partials[id] = nil }  // a rename
      let copy = LibraryCopy(path: path, size: size, modified: modified ?? 0, changed: 0, device: 0, inode: 0)
      state.copies[path] = (copy, memory)
      return copy
    }
  }
}

/// The bytes of one generation of a fake store.
private final class FakePartialFile: OpenPartialFile {
  let id: Int64
  private let memory: FakeStore.Memory
  private let store: FakeStore

  init(id: Int64, _ memory: FakeStore.Memory, of store: FakeStore) {
    self.id = id
    self.memory = memory
    self.store = store
  }

  var fileDescriptor: Int32 { memory.descriptor.rawValue }
  var syncFailure: Errno? { nil }
  func syncData() throws(Errno) { try memory.descriptor.syncData() }
  func dataRanges() -> ByteRangeSet { memory.written.withLock { $0 } }
  func write(_ bytes: UnsafeRawBufferPointer, at offset: Int64) throws(Errno) {
    try memory.descriptor.writeFully(bytes, at: offset)
    memory.written.withLock { $0.insert(ByteRange(at: offset, count: Int64(bytes.count))) }
  }
  func punch(_ range: ByteRange) { memory.written.withLock { $0.remove(range) } }
  func allocated() -> Int64 { memory.written.withLock { $0.count } }
  func isMoved() -> Bool { store.isMoved(id, memory) }
  func place(
    as path: String, size: Int64, modified: Int64?, isCancelled: () -> Bool,
    reserve: (Int64) throws(StoreError) -> Void, recordIntent: (String) throws(StoreError) -> Void
  ) throws(StoreError) -> Placement {
    var number = 1
    if store.isOnOtherFilesystem { try reserve(size) }
    while true {
      let attempt = number == 1 ? path : "\(path) (\(number))"
      try recordIntent(attempt)
      if let copy = store.place(id, memory, as: attempt, size, modified) {
        return Placement(copy: copy, adopted: false)
      }
      number += 1
    }
  }
}

extension FakeStore: CompletedCopies {
  var path: String { "memory" }
  func check(_ copy: LibraryCopy) -> CopyState {
    state.withLock { state in
      guard let there = state.copies[copy.path] else { return .missing }
      return there.copy == copy ? .intact : .modified
    }
  }
  func isOnlyCopy(_ copy: LibraryCopy) -> Bool { check(copy) == .intact }
  func recover(intent path: String, size: Int64, modified: Int64?, partialExists: Bool) -> LibraryCopy? {
    state.withLock { $0.copies[path]?.copy }.flatMap { $0.size == size && !partialExists ? $0 : nil }
  }
  func open(_ copy: LibraryCopy) throws(StoreError) -> FileDescriptor {
    guard check(copy) == .intact, let memory = state.withLock({ $0.copies[copy.path]?.memory }) else {
      throw StoreError(kind: .invalid, message: "\(copy.path) is not intact")
    }
    if state.withLock({ $0.refusesCopies }) {
      throw StoreError(kind: .io(Errno(rawValue: EMFILE)), message: "the fake store refuses copies")
    }
    return try calling("cannot open \(copy.path)") { () throws(Errno) in
      FileDescriptor(owning: try retrying { dup(memory.descriptor.rawValue) })
    }
  }
  func remove(_ copy: LibraryCopy) -> Bool {
    check(copy) == .intact && state.withLock { $0.copies.removeValue(forKey: copy.path) } != nil
  }
}
