import Base
import Glibc
import TestSupport
import Testing

@testable import Storing

@Suite struct FilesPartialTests {
  let home: TestFolder
  let store: StoreFolder
  init() throws {
    home = try TestFolder()
    store = try StoreFolder.open(home.path + "/store", mountpoint: "/m", wait: 0)
  }

  /// Bytes that the file takes on the disk.
  private func allocatedBytes(_ file: PartialFile) throws -> Int64 {
    Int64(try file.descriptor.status().st_blocks) * 512
  }

  @Test func keepsBytesAtTheirOffsets() throws {
    let file = try PartialFile(in: store, id: 7, create: true)
    let bytes = sampleBytes(100_000)
    try file.put(bytes, at: 5_000_000_000)
    #expect(try file.descriptor.status().st_size == 5_000_100_000)
    #expect(try allocatedBytes(file) < 1 << 20)
    #expect(home.status("store/partial/7")?.st_mode == S_IFREG | 0o600)
    let again = try PartialFile(in: store, id: 7, create: false)
    var read = [UInt8](repeating: 0, count: 200_000)
    let count = try read.withUnsafeMutableBytes { try again.descriptor.readFully(at: 5_000_000_000, into: $0) }
    #expect(count == bytes.count && Array(read[..<count]) == bytes)
    #expect(try read.withUnsafeMutableBytes { try again.descriptor.readFully(at: 6_000_000_000, into: $0) } == 0)
  }

  @Test func aMissingOneIsMadeOnlyOnRequest() throws {
    let missing = failure { () throws(StoreError) in _ = try PartialFile(in: store, id: 1, create: false) }
    #expect(missing?.kind == .io(.notFound))
    // The folder itself removed by hand.
    #expect(rmdir(store.path + "/partial") == 0)
    try PartialFile(in: store, id: 1, create: true).put([1])
    #expect(home.bytes("store/partial/1") == [1])
  }

  @Test func knowsHolesFromData() throws {
    let mebibyte: Int64 = 1 << 20
    let file = try PartialFile(in: store, id: 1, create: true)
    #expect(try file.dataRanges().isEmpty)
    try file.put(sampleBytes(Int(mebibyte)), at: 0)
    try file.put(sampleBytes(Int(mebibyte)), at: 8 * mebibyte)
    let ranges = try file.dataRanges()
    #expect(ranges.contains(ByteRange(0, mebibyte)) && ranges.contains(ByteRange(8 * mebibyte, 9 * mebibyte)))
    #expect(!ranges.contains(ByteRange(at: 4 * mebibyte, count: 1)))
    #expect(try allocatedBytes(file) < 4 * mebibyte)
  }

  @Test func writtenBytesAreAlwaysData() throws {
    var generator = SeededRandom.fromEnvironment()
    let file = try PartialFile(in: store, id: 1, create: true)
    var claimed = ByteRangeSet()
    for _ in 0..<40 {
      let start = Int64.random(in: 0..<(4 << 20), using: &generator)
      let range = ByteRange(at: start, count: Int64.random(in: 1..<100_000, using: &generator))
      try file.put([UInt8](repeating: 0, count: Int(range.count)), at: range.start)  // zeros are bytes, too
      claimed.insert(range)
    }
    let ranges = try file.dataRanges()
    for range in claimed.ranges { #expect(ranges.contains(range), "seed \(generator.seed), \(range)") }
  }

  @Test func readersOutliveTheName() throws {
    let file = try PartialFile(in: store, id: 3, create: true)
    try file.put([1, 2, 3])
    try file.remove()
    try file.remove()
    #expect(home.status("store/partial/3") == nil)
    var byte = [UInt8](repeating: 0, count: 3)
    #expect(try byte.withUnsafeMutableBytes { try file.descriptor.readFully(at: 0, into: $0) } == 3)
    #expect(byte == [1, 2, 3])
  }

  @Test func noHoleIsPunchedIntoAFileOfTheLibrary() throws {
    let bytes = sampleBytes(1 << 20)
    let file = try PartialFile(in: store, id: 3, create: true)
    try file.put(bytes)
    try #require(rename(store.path + "/partial/3", home.path + "/film.mp4") == 0)
    // Another file has its name by now, or none.
    for hasName in [false, true] {
      if hasName { _ = try PartialFile(in: store, id: 3, create: true) }
      #expect(throws: Errno.stale) { try file.punch(ByteRange(0, 1 << 19)) }
      #expect(home.bytes("film.mp4") == bytes)
    }
    // Without any name it is nobody's.
    unlink(home.path + "/film.mp4")
    try file.punch(ByteRange(0, 1 << 19))
  }

  @Test func somethingElseInPlaceOfTheFile() throws {
    mkfifo(store.path + "/partial/1", 0o600)
    mkdir(store.path + "/partial/2", 0o700)
    symlink(home.path + "/elsewhere", store.path + "/partial/3")
    for id in 1...3 as ClosedRange<Int64> {
      #expect(failure { () throws(StoreError) in _ = try PartialFile(in: store, id: id, create: true) } != nil, "\(id)")
    }
    #expect(home.status("elsewhere") == nil)
  }

  @Test func listsAndRemovesWhatIsThere() throws {
    for id in [12, 3, 100] as [Int64] { _ = try PartialFile(in: store, id: id, create: true) }
    try home.write("store/partial/notes", [])
    try home.write("store/partial/007", [])
    #expect(try store.partialIDs() == [3, 12, 100])
    #expect(try PartialFile.remove(12, in: store))
    #expect(try !PartialFile.remove(12, in: store))
    #expect(try store.partialIDs() == [3, 100])
  }

  @Test func aFailedSyncIsNotForgotten() throws {
    // /dev/full takes the place of a disk that loses writes: fdatasync(2) of a device like it fails with EINVAL,
    // always.
    let file = try PartialFile(in: store, id: 1, create: true)
    try file.put([1])
    let device = try FileDescriptor.open("/dev/full", O_RDWR)
    let kept = dup(file.fileDescriptor)
    defer { close(kept) }
    dup2(device.rawValue, file.fileDescriptor)
    #expect(throws: Errno.self) { try file.syncData() }
    dup2(kept, file.fileDescriptor)
    #expect(throws: Errno.self) { try file.syncData() }
    try PartialFile(in: store, id: 1, create: false).syncData()
  }

  @Test func aFullDiskIsAnErrorOfTheWrite() throws {
    let file = try PartialFile(in: store, id: 1, create: true)
    let device = try FileDescriptor.open("/dev/full", O_RDWR)
    dup2(device.rawValue, file.fileDescriptor)
    #expect(throws: Errno.noSpace) { try file.put([1]) }
    #expect(StoreError.file(.noSpace, "x").kind == .full && StoreError.file(Errno(rawValue: EDQUOT), "x").kind == .full)
    #expect(StoreError.file(.io, "x").kind == .io(.io))
  }
}
