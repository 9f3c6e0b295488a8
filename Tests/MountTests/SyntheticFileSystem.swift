import Base
import Glibc

@testable import Mount
@testable import Reading

/// The byte at `offset` of the file `inode`: any read of any file can be checked anywhere.
func pattern(_ inode: Inode, _ offset: Int64) -> UInt8 {
  UInt8(truncatingIfNeeded: patternWord(inode, offset >> 3) >> (8 * UInt64(offset & 7)))
}

/// The eight bytes from `8 * index`, the first in the lowest bits.
private func patternWord(_ inode: Inode, _ index: Int64) -> UInt64 {
  let value = UInt64(bitPattern: index) &+ inode &* 0x9E37_79B9_7F4A_7C15
  return (value ^ (value >> 30)) &* 0xBF58_476D_1CE4_E5B9
}

/// Fills `buffer` with the bytes from `offset`.
func fill(_ buffer: UnsafeMutableRawBufferPointer, _ inode: Inode, at offset: Int64) {
  var index = 0
  while index < buffer.count && (offset + Int64(index)) & 7 != 0 {
    buffer[index] = pattern(inode, offset + Int64(index))
    index += 1
  }
  while index + 8 <= buffer.count {
    let word = patternWord(inode, (offset + Int64(index)) >> 3).littleEndian
    buffer.storeBytes(of: word, toByteOffset: index, as: UInt64.self)
    index += 8
  }
  while index < buffer.count {
    buffer[index] = pattern(inode, offset + Int64(index))
    index += 1
  }
}

/// A tree of made-up files that answer late, wrongly or never, as told. What the kernel asked is counted.
final class SyntheticFileSystem: Served {
  /// How a file answers.
  enum Behaviour: Equatable {
    case plain
    /// Reads are answered by another thread.
    case late
    /// Its size is known only once stat or open has waited for it.
    case sizeless
    /// Its length is never known: past the page cache, until nothing comes.
    case stream
    /// Reads are never answered by themselves.
    case stuck
    /// Stat is never answered by itself.
    case stuckStat
    case failsToOpen(Errno)
    case failsToRead(Errno)
  }

  struct Node {
    var inode: Inode
    var parent: Inode
    var name: String
    var isFolder = false
    var size: Int64 = 0
    var behaviour = Behaviour.plain
  }

  enum Parked {
    case read(Inode, Int64, Int)
    case attributes(Inode)
    case open(Inode)

    /// Whose bytes are waited for, if any are.
    var inode: Inode? { if case .read(let inode, _, _) = self { inode } else { nil } }
  }

  struct State {
    var port: (any ReplyPort)?
    var nodes: [Inode: Node] = [:]
    var sizeKnown: Set<Inode> = []
    /// Files that are complete.
    var copies: [Inode: ServedFile] = [:]
    var parked: [Ticket: Parked] = [:]
    /// Tickets that the replier leaves alone.
    var held: Set<Ticket> = []
    var interrupts: [(ticket: Ticket, isKilled: Bool)] = []
    var readers: Set<Int32> = []
    var lookups = 0
    var reads = 0
    var opens = 0
    var releases = 0
    var renewals = 0
    var isEnding = false
  }

  let state = Lock(State())
  static let extended = ["user.mime_type": Array("audio/flac".utf8), "user.empty": []]

  init(_ nodes: [Node]) {
    state.withLock { state in
      state.nodes[rootInode] = Node(inode: rootInode, parent: rootInode, name: "", isFolder: true)
      for node in nodes { state.nodes[node.inode] = node }
    }
  }

  private func node(_ inode: Inode) -> Node? { state.withLock { $0.nodes[inode] } }

  private func attributes(_ node: Node) -> Attributes {
    let isKnown = node.behaviour == .sizeless ? state.withLock { $0.sizeKnown.contains(node.inode) } : true
    let isFinal = isKnown && node.behaviour != .stream && node.behaviour != .stuckStat
    return Attributes(
      inode: node.inode, isFolder: node.isFolder, size: isKnown && node.behaviour != .stream ? node.size : 1,
      modified: 1_000_000_000, isFinal: isFinal)
  }

  /// Answers what is parked, other than what is held. To be called over and over by a thread of its own.
  func answerParked() {
    let (port, ready) = state.withLock { state in
      let ready = state.parked.filter { !state.held.contains($0.key) }
      for ticket in ready.keys { state.parked[ticket] = nil }
      for case .attributes(let inode) in ready.values { state.sizeKnown.insert(inode) }
      for case .open(let inode) in ready.values { state.sizeKnown.insert(inode) }
      return (state.port, ready)
    }
    for (ticket, parked) in ready {
      switch parked {
      case .read(let inode, let offset, let count):
        let buffer = UnsafeMutableRawBufferPointer.allocate(byteCount: count, alignment: 16)
        defer { buffer.deallocate() }
        fill(buffer, inode, at: offset)
        port?.reply(ticket, data: UnsafeRawBufferPointer(buffer))
      case .attributes(let inode):
        if let node = node(inode) { port?.reply(ticket, attributes: attributes(node)) }
      case .open(let inode):
        let isWanted = port?.reply(ticket, opened: OpenMode(directIO: false), inode: inode) ?? false
        if isWanted { state.withLock { $0.opens += 1 } }
      }
    }
  }

  /// Says where answers to what is parked go.
  func connect(_ port: any ReplyPort) { state.withLock { $0.port = port } }

  // MARK: Served

  func lookup(parent: Inode, name: UnsafeBufferPointer<UInt8>) throws(Errno) -> Attributes {
    let found = state.withLock { state in
      state.lookups += 1
      return state.nodes.values.first { $0.parent == parent && $0.name.utf8.elementsEqual(name) }
    }
    guard let found else { throw .notFound }
    return attributes(found)
  }

  func find(_ name: UnsafeBufferPointer<UInt8>, in parent: Inode) throws(Errno) -> Attributes {
    try lookup(parent: parent, name: name)
  }

  func met(_ folder: Inode) {}

  func known(_ inode: Inode) -> Attributes? { node(inode).map(attributes) }

  func attributes(of inode: Inode, ticket: Ticket, caller: Caller) -> Answer<Attributes> {
    guard let node = node(inode) else { return .failed(.stale) }
    let parks = state.withLock { state in
      switch node.behaviour {
      case .sizeless where !state.sizeKnown.contains(inode): break
      case .stuckStat: state.held.insert(ticket)
      default: return false
      }
      state.parked[ticket] = .attributes(inode)
      return true
    }
    return parks ? .parked : .now(attributes(node))
  }

  func list(_ folder: Inode, after cookie: Int64, _ visit: (DirectoryItem) -> Bool) throws(Errno) {
    guard let node = node(folder) else { throw .stale }
    guard node.isFolder else { throw .notDirectory }
    let items = state.withLock { state in
      state.nodes.values.filter { $0.parent == folder && $0.inode != rootInode && Int64($0.inode) > cookie }
    }
    for item in items.sorted(by: { $0.inode < $1.inode }) {
      let next = DirectoryItem(cookie: Int64(item.inode), name: item.name, attributes: attributes(item))
      if !visit(next) { return }
    }
  }

  func path(of inode: Inode) -> String? {
    if inode == rootInode { return "" }
    guard let node = node(inode), let parent = path(of: node.parent) else { return nil }
    return parent.isEmpty ? node.name : "\(parent)/\(node.name)"
  }

  func parent(of folder: Inode) -> Inode { node(folder)?.parent ?? rootInode }
  func openFolder(_ folder: Inode, ticket: Ticket) -> Answer<Void> { .now(()) }

  func open(_ inode: Inode, ticket: Ticket, caller: Caller) -> Answer<OpenMode> {
    guard let node = node(inode) else { return .failed(.stale) }
    return state.withLock { state in
      switch node.behaviour {
      case .failsToOpen(let error): return .failed(error)
      case .sizeless where !state.sizeKnown.contains(inode):
        state.parked[ticket] = .open(inode)
        return .parked
      default:
        state.opens += 1
        return .now(OpenMode(directIO: node.behaviour == .stream, copy: state.copies[inode]))
      }
    }
  }

  func read(
    _ inode: Inode, at offset: Int64, into buffer: UnsafeMutableRawBufferPointer, ticket: Ticket, caller: Caller
  ) -> Answer<Int> {
    guard let node = node(inode) else { return .failed(.stale) }
    let count = Int(max(0, min(Int64(buffer.count), node.size - offset)))
    if case .failsToRead(let error) = node.behaviour { return .failed(error) }
    let parks = state.withLock { state in
      state.reads += 1
      state.readers.insert(caller.process)
      guard node.behaviour == .late || node.behaviour == .stuck, count > 0 else { return false }
      if node.behaviour == .stuck { state.held.insert(ticket) }
      state.parked[ticket] = .read(inode, offset, count)
      return true
    }
    if parks { return .parked }
    fill(UnsafeMutableRawBufferPointer(rebasing: buffer[..<count]), inode, at: offset)
    return .now(count)
  }

  func renew(_ inode: Inode, ticket: Ticket) -> Bool {
    state.withLock { state in
      state.renewals += 1
      state.opens -= 1
      if var node = state.nodes[inode] {
        state.nodes[inode]?.name = ""  // open handles still ask for its attributes
        node.inode += 1_000_000
        state.nodes[node.inode] = node
      }
    }
    return false
  }

  func release(_ inode: Inode) { state.withLock { $0.releases += 1 } }

  func interrupt(_ ticket: Ticket, isKilled: Bool) -> Bool {
    state.withLock { state in
      state.interrupts.append((ticket, isKilled))
      return isKilled && state.parked.removeValue(forKey: ticket) != nil
    }
  }

  func capacity() throws(Errno) -> Capacity {
    Capacity(total: 4096 * 1000, free: 4096 * 500, available: 4096 * 400, names: 77)
  }

  func extendedAttribute(_ name: String, of inode: Inode) throws(Errno) -> [UInt8] {
    guard let value = Self.extended[name] else { throw .noData }
    return value
  }

  func extendedAttributes(of inode: Inode) throws(Errno) -> [String] { Self.extended.keys.sorted() }
}
