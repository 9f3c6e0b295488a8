import Base
import CFuse
import CSystem
import Glibc
import Reading

/// The memory that the servers of a mount hand on, one to the next, also when one is killed (mount-helper/PROTOCOL.md).
/// The helper keeps it.
///
/// At every instruction of a server, each request that the kernel waits for is in a buffer or in a slot: a request is
/// read into a buffer, copied to a slot if it has to wait, and cleared in both only after its reply. The next server
/// begins when no thread of the last one runs any more, so the order of the program's own stores is enough.
package final class SessionMemory: @unchecked Sendable {
  // @unchecked: `base` never changes. A loop thread alone uses its buffer and its record; other threads share the last
  // record, and add to it atomically. A slot is used under the
  // lock of `Tickets`, a handle and the header's marks under the lock that guards their free list. The rest of the
  // header is written before the loop threads start.

  /// The version of the layout.
  package static var layoutVersion: UInt32 { SessionLayout.version }

  private let base: UnsafeMutableRawPointer

  /// Maps the memory behind `file`, which closes. Throws if it is not of this version.
  package init(_ file: consuming FileDescriptor) throws(MountError) {
    let size = SessionLayout.size
    let hasSize: Bool
    do throws(Errno) {
      hasSize = Int(try file.status().st_size) == size
    } catch { throw .system("looking at the session memory", error) }
    guard hasSize else { throw .memory }
    guard let mapped = mmap(nil, size, PROT_READ | PROT_WRITE, MAP_SHARED, file.rawValue, 0), mapped != MAP_FAILED
    else { throw .system("mapping the session memory", .current) }
    base = mapped
    if isNew {
      base.storeBytes(of: SessionLayout.version, toByteOffset: SessionLayout.versionAt, as: UInt32.self)
      base.storeBytes(of: SessionLayout.magic, as: UInt64.self)
    }
    guard base.load(as: UInt64.self) == SessionLayout.magic, load32(SessionLayout.versionAt) == SessionLayout.version,
      isHeaderIntact
    else { throw .memory }
    // The second mark may be behind by one: a second kill at that place would leave it behind by two.
    for area in [Area.slots, .handles] { commit32(UInt32(mark(of: area)), at: area.secondMarkAt) }
    keepResident(UnsafeMutableRawBufferPointer(start: base, count: SessionLayout.slotStart))
    noteSuspects()
    clearRecords()
  }

  /// A memory of its own, for a mount without a helper.
  package convenience init() throws(MountError) { try self.init(Self.newFile()) }

  private static func newFile() throws(MountError) -> FileDescriptor {
    do throws(Errno) {
      let file = FileDescriptor(owning: try retrying { csystem_make_memory_file("mediafs session") })
      try file.truncate(to: Int64(SessionLayout.size))
      return file
    } catch { throw .system("making the session memory", error) }
  }

  deinit { munmap(base, SessionLayout.size) }

  private var isNew: Bool { base.load(as: UInt64.self) == 0 }

  private func load32(_ offset: Int) -> UInt32 { base.load(fromByteOffset: offset, as: UInt32.self) }
  private func commit32(_ value: UInt32, at offset: Int) { cfuse_commit(base + offset, value) }

  // MARK: The header

  /// Whether the header is as servers wrote it. Without its marks and its INIT, nobody can tell what readers wait for:
  /// the helper, which looks into every slot, answers them with errors.
  private var isHeaderIntact: Bool {
    guard isIntact(.slots), isIntact(.handles) else { return false }
    let length = Int(load32(SessionLayout.initLengthAt))
    guard length <= SessionLayout.longestInit else { return false }
    if length > 0, load32(SessionLayout.initCheckAt) != checksum(savedInit(length)) { return false }
    let hasBegun = savedBeginning.contains { $0 != 0 }
    if hasBegun, load32(SessionLayout.beginningCheckAt) != checksum(savedBeginning) { return false }
    // The first server saved INIT, or there would be no next one.
    return !hasBegun || length > 0
  }

  private func savedInit(_ length: Int) -> UnsafeRawBufferPointer {
    UnsafeRawBufferPointer(start: base + SessionLayout.initAt, count: length)
  }

  private var savedBeginning: UnsafeRawBufferPointer {
    UnsafeRawBufferPointer(start: base + SessionLayout.firstIDAt, count: 24)
  }

  /// The kernel's INIT request, which it sends only once; empty before the first server saved it.
  var initRequest: [UInt8] {
    let length = min(Int(load32(SessionLayout.initLengthAt)), SessionLayout.longestInit)
    return Array(savedInit(length))
  }

  /// Saves the kernel's INIT request.
  func save(initRequest: UnsafeRawBufferPointer) throws(MountError) {
    guard initRequest.count <= SessionLayout.longestInit else { throw .handshake }
    (base + SessionLayout.initAt).copyMemory(from: initRequest.baseAddress!, byteCount: initRequest.count)
    commit32(checksum(initRequest), at: SessionLayout.initCheckAt)
    commit32(UInt32(initRequest.count), at: SessionLayout.initLengthAt)
  }

  /// What the first server of the mount began with, for the next ones; nil until ``remember(_:catalogID:)``.
  package var beginning: MountBeginning? {
    let id = base.load(fromByteOffset: SessionLayout.firstIDAt, as: Int64.self)
    let date = base.load(fromByteOffset: SessionLayout.mountedAtAt, as: Int64.self)
    return id == 0 ? nil : MountBeginning(firstID: id, mountedAt: date)
  }

  /// The number of the catalog that the mount shows; 0 until ``remember(_:catalogID:)``.
  package var catalogID: Int64 { base.load(fromByteOffset: SessionLayout.catalogIDAt, as: Int64.self) }

  /// Keeps what this server began with, as the mount's first.
  package func remember(_ beginning: MountBeginning, catalogID: Int64) {
    base.storeBytes(of: catalogID, toByteOffset: SessionLayout.catalogIDAt, as: Int64.self)
    base.storeBytes(of: beginning.mountedAt, toByteOffset: SessionLayout.mountedAtAt, as: Int64.self)
    base.storeBytes(of: beginning.firstID, toByteOffset: SessionLayout.firstIDAt, as: Int64.self)
    commit32(checksum(savedBeginning), at: SessionLayout.beginningCheckAt)
  }

  // MARK: Buffers

  /// The request buffer of thread `index`.
  func buffer(_ index: Int) -> UnsafeMutableRawBufferPointer {
    let start = base + SessionLayout.bufferStart + index * SessionLayout.bufferSize
    return UnsafeMutableRawBufferPointer(start: start, count: SessionLayout.bufferSize)
  }

  /// The request in a buffer that is not done with; nil if there is none.
  func request(inBuffer index: Int) -> UnsafeRawBufferPointer? { Self.request(UnsafeRawBufferPointer(buffer(index))) }

  /// The request of a buffer has its reply, or a slot.
  @inline(__always)
  func clearBuffer(_ index: Int) {
    cfuse_commit(base + SessionLayout.bufferStart + index * SessionLayout.bufferSize, 0)
  }

  /// Counts an answer of a loop thread, or of another one: the helper wants to know whether a server answers at all.
  @inline(__always)
  func countAnswer(ofThread index: Int?) {
    guard let index else { return cfuse_count(recordPlace(SessionLayout.bufferCount - 1)) }  // its first field
    recordPlace(index).pointee.answers &+= 1
  }

  // MARK: Records

  private func recordPlace(_ index: Int) -> UnsafeMutablePointer<csystem_record> {
    (base + SessionLayout.threadStart + index * SessionLayout.threadSize)
      .assumingMemoryBound(to: csystem_record.self)  // nothing else is stored there
  }

  private func record(_ index: Int) -> ThreadRecord { ThreadRecord(at: recordPlace(index), in: self) }

  /// Where loop thread `index` notes that it runs. What it is busy with is in its buffer.
  func record(ofThread index: Int) -> ThreadRecord { record(index) }

  /// Where the transfer thread, the keeper and the finisher note what they are busy with.
  package var transfersRecord: ThreadRecord {
    record(SessionLayout.bufferCount + SessionLayout.Worker.transfers.rawValue)
  }
  package var keeperRecord: ThreadRecord { record(SessionLayout.bufferCount + SessionLayout.Worker.keeper.rawValue) }
  package var finisherRecord: ThreadRecord {
    record(SessionLayout.bufferCount + SessionLayout.Worker.finisher.rawValue)
  }

  /// Notes which request loop thread `index` serves, if it is not in the thread's own buffer.
  func note(request: UnsafeRawBufferPointer?, ofThread index: Int) {
    let place = request?.baseAddress.map { UInt32(UnsafeRawPointer(base).distance(to: $0)) }
    recordPlace(index).pointee.request = place ?? 0
  }

  /// The request that loop thread `index` of the last server served when it raised a signal, once; nil if it did not.
  func takeDeadlyRequest(ofThread index: Int) -> UnsafeRawBufferPointer? {
    let record = recordPlace(index)
    if record.pointee.died == 0 { return nil }
    // First: if this server is killed now, the next one counts a death too few.
    record.pointee.died = 0
    let place = Int(record.pointee.request)
    if place == 0 { return request(inBuffer: index) }
    guard place >= SessionLayout.bufferStart, place % 16 == 0, place < SessionLayout.handleStart else { return nil }
    let end = min(place + SessionLayout.bufferSize, SessionLayout.handleStart)
    return Self.request(UnsafeRawBufferPointer(start: base + place, count: end - place))
  }

  /// A request in whose service threads died.
  func suspect(_ index: Int) -> Suspect? {
    let place = base + SessionLayout.suspectStart + index * SessionLayout.suspectSize
    let (from, to) = (place.load(fromByteOffset: 16, as: UInt64.self), place.load(fromByteOffset: 24, as: UInt64.self))
    let deaths = place.load(fromByteOffset: 4, as: UInt32.self)
    guard deaths > 0, from <= to else { return nil }
    return Suspect(
      operation: place.load(as: UInt32.self), inode: place.load(fromByteOffset: 8, as: UInt64.self),
      place: from..<to, deaths: deaths)
  }

  func keep(_ suspect: Suspect, at index: Int) {
    let place = base + SessionLayout.suspectStart + index * SessionLayout.suspectSize
    commit32(0, at: SessionLayout.suspectStart + index * SessionLayout.suspectSize + 4)
    place.storeBytes(of: suspect.operation, as: UInt32.self)
    place.storeBytes(of: suspect.inode, toByteOffset: 8, as: UInt64.self)
    place.storeBytes(of: suspect.place.lowerBound, toByteOffset: 16, as: UInt64.self)
    place.storeBytes(of: suspect.place.upperBound, toByteOffset: 24, as: UInt64.self)
    commit32(suspect.deaths, at: SessionLayout.suspectStart + index * SessionLayout.suspectSize + 4)
  }

  /// The threads of the last server are gone.
  private func clearRecords() {
    for index in 0..<SessionLayout.threadCount {
      let answers = recordPlace(index).pointee.answers
      recordPlace(index).pointee = csystem_record()
      recordPlace(index).pointee.answers = answers
    }
  }

  // MARK: Slots

  /// A table of records of one size. All from the mark on are free, and were never used.
  private struct Area {
    let markAt: Int
    let secondMarkAt: Int
    let start: Int
    let size: Int
    let count: Int
    static let slots = Area(
      markAt: SessionLayout.slotMarkAt, secondMarkAt: SessionLayout.secondSlotMarkAt, start: SessionLayout.slotStart,
      size: SessionLayout.slotSize, count: SessionLayout.slotCount)
    static let handles = Area(
      markAt: SessionLayout.handleMarkAt, secondMarkAt: SessionLayout.secondHandleMarkAt,
      start: SessionLayout.handleStart, size: SessionLayout.handleSize, count: SessionLayout.handleCount)
  }

  private func mark(of area: Area) -> Int { Int(load32(area.markAt)) }

  private func raiseMark(of area: Area, to mark: Int) {
    commit32(UInt32(mark), at: area.markAt)
    commit32(UInt32(mark), at: area.secondMarkAt)
  }

  /// A server that is killed between the two stores leaves the second mark behind by one.
  private func isIntact(_ area: Area) -> Bool {
    let (first, second) = (mark(of: area), Int(load32(area.secondMarkAt)))
    return first <= area.count && (first == second || first == second + 1)
  }

  private func place(_ index: Int, in area: Area) -> UnsafeMutableRawPointer { base + area.start + index * area.size }

  var slotMark: Int { mark(of: .slots) }
  func raiseSlotMark(to mark: Int) { raiseMark(of: .slots, to: mark) }
  private func slot(_ index: Int) -> UnsafeMutableRawPointer { place(index, in: .slots) }

  /// Whether a slot is in use, or seems to be.
  func isTaken(slot index: Int) -> Bool { slot(index).load(as: UInt32.self) != 0 }

  /// The request in a slot; nil in a free or a damaged one.
  func request(inSlot index: Int) -> UnsafeRawBufferPointer? {
    guard isTaken(slot: index), let request = Self.request(bytes(ofSlot: index)),
      slot(index).load(fromByteOffset: SessionLayout.slotCheck, as: UInt32.self) == checksum(request)
    else { return nil }
    return request
  }

  /// What a slot has room for.
  func bytes(ofSlot index: Int) -> UnsafeRawBufferPointer {
    UnsafeRawBufferPointer(
      start: slot(index) + SessionLayout.slotRequest, count: SessionLayout.slotSize - SessionLayout.slotRequest)
  }

  /// Copies a request into a slot. False if it does not fit, or there is no such slot.
  func keep(_ request: UnsafeRawBufferPointer, inSlot index: Int) -> Bool {
    guard index < SessionLayout.slotCount, request.count <= SessionLayout.slotSize - SessionLayout.slotRequest,
      let bytes = request.baseAddress
    else { return false }
    let slot = slot(index)
    (slot + SessionLayout.slotRequest).copyMemory(from: bytes, byteCount: request.count)
    slot.storeBytes(of: checksum(request), toByteOffset: SessionLayout.slotCheck, as: UInt32.self)
    cfuse_commit(slot, UInt32(request.count))
    return true
  }

  /// The request of a slot has its reply.
  func clearSlot(_ index: Int) { cfuse_commit(slot(index), 0) }

  /// The request that begins in `bytes`; nil if there is none, or none that the kernel sent.
  private static func request(_ bytes: UnsafeRawBufferPointer) -> UnsafeRawBufferPointer? {
    let length = Int(bytes.load(as: UInt32.self))
    guard length >= RequestHeader.length, length <= bytes.count else { return nil }
    return UnsafeRawBufferPointer(rebasing: bytes[..<length])
  }

  // MARK: Handles

  var handleMark: Int { mark(of: .handles) }
  func raiseHandleMark(to mark: Int) { raiseMark(of: .handles, to: mark) }
  private func handle(_ index: Int) -> UnsafeMutableRawPointer { place(index, in: .handles) }

  /// Whether a handle's place is in use, or seems to be.
  func isTaken(handle index: Int) -> Bool { handle(index).load(as: UInt64.self) != 0 }

  /// The handle at a place; nil at a free or a damaged one.
  func handleRecord(_ index: Int) -> OpenHandle? {
    guard isTaken(handle: index) else { return nil }
    let handle = handle(index)
    let record = OpenHandle(
      unique: handle.load(as: UInt64.self),
      inode: handle.load(fromByteOffset: SessionLayout.handleInode, as: UInt64.self),
      backing: handle.load(fromByteOffset: SessionLayout.handleBacking, as: Int32.self))
    return handle.load(fromByteOffset: SessionLayout.handleCheck, as: UInt32.self) == record.checksum ? record : nil
  }

  func keep(_ record: OpenHandle, inHandle index: Int) {
    let handle = handle(index)
    handle.storeBytes(of: record.inode, toByteOffset: SessionLayout.handleInode, as: UInt64.self)
    handle.storeBytes(of: record.backing, toByteOffset: SessionLayout.handleBacking, as: Int32.self)
    handle.storeBytes(of: record.checksum, toByteOffset: SessionLayout.handleCheck, as: UInt32.self)
    cfuse_commit_long(handle, record.unique)
  }

  func clearHandle(_ index: Int) { cfuse_commit_long(handle(index), 0) }
}

/// An open handle, as the session memory has it.
struct OpenHandle: Equatable {
  /// The number of the OPEN request, which the kernel never uses again in this mount.
  var unique: UInt64
  var inode: Inode
  /// The kernel's id of the file that it reads from itself; 0 if it asks the server.
  var backing: Int32

  fileprivate var checksum: UInt32 { withUnsafeBytes(of: (unique, inode, backing)) { Mount.checksum($0) } }
}
