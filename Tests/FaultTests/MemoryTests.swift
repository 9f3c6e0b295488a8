import Base
import Glibc
import TestSupport
import Testing

/// The memory of a server at full speed: a bound that neither files, nor their sizes, nor what was moved goes beyond.
@Suite("Memory")
struct MemoryTests {
  /// What the server may ever take, in KiB, beside the pages of its program and of libraries: a debug build has many of
  /// these, and more with each line of code.
  private static let bound = 48 << 10
  private static let files = 64
  private static let size: Int64 = 5 << 30
  /// What is read at a time, and around what place far behind.
  private static let step: Int64 = 128 << 10
  private static let far: Int64 = 4 << 30

  enum Store: String, CaseIterable, Sendable, CustomTestStringConvertible {
    case roomy = "a store with room"
    case full = "a store that is full"
    var testDescription: String { rawValue }
    var options: [String] { self == .roomy ? [] : ["--min-free", "1000000G"] }
    /// Of each file, at first.
    var piece: Int64 { self == .roomy ? 4 << 20 : 2 << 20 }
    /// At the beginning; around 4 GiB, and three times as much.
    var ranges: [ByteRange] { [ByteRange(0, piece), ByteRange(at: far - piece, count: 3 * piece)] }
  }

  /// What stands in a file at `offset`, a multiple of `step`: behind it all is zero, because the files are holes.
  private static func mark(_ number: Int, _ offset: Int64) -> [UInt8] {
    Pattern.bytes(name: "/\(number).bin", offset: offset, count: 16)
  }

  /// Makes a file of an origin: a hole, with marks where it will be read.
  private static func make(_ path: String, _ number: Int, _ store: Store) throws(Errno) {
    let file = try FileDescriptor.open(path, O_RDWR | O_CREAT)
    if ftruncate(file.rawValue, Int(size)) != 0 { throw Errno.current }
    for range in store.ranges {
      for offset in stride(from: range.start, to: range.end, by: Int(step)) {
        let mark = mark(number, offset)
        if pwrite(file.rawValue, mark, mark.count, Int(offset)) != mark.count { throw Errno.current }
      }
    }
  }

  /// Reads a range of every file, each by a reader of its own; what went wrong.
  private static func read(_ range: ByteRange, _ mount: FaultMount) -> [String] {
    let bodies = (0..<files).map { number -> @Sendable () -> String? in
      {
        let descriptor = open(mount.file("\(number).bin"), O_RDONLY | O_CLOEXEC)
        guard descriptor >= 0 else { return "the open of \(number): \(Errno.current)" }
        defer { close(descriptor) }
        var buffer = [UInt8](repeating: 1, count: Int(step))
        var expected = [UInt8](repeating: 0, count: Int(step))
        for offset in stride(from: range.start, to: range.end, by: Int(step)) {
          let count = pread(descriptor, &buffer, buffer.count, Int(offset))
          if count < 0 { return "\(number) at \(offset): \(Errno.current)" }
          let mark = mark(number, offset)
          expected.replaceSubrange(0..<mark.count, with: mark)
          if count < expected.count { return "\(number) at \(offset): \(count) bytes only" }
          if memcmp(buffer, expected, count) != 0 { return "\(number) at \(offset): wrong bytes" }
          Figures.add("bytes compared", count)
        }
        return nil
      }
    }
    return Reader.sideBySide(timeout: 300, bodies).compactMap { $0 == nil ? "a reader hangs" : $0! }
  }

  @Test("64 readers of 64 files of several GiB, at full speed", arguments: Store.allCases)
  func bounded(store: Store) async {
    let nginx = Lock<Nginx?>(nil)
    defer { nginx.withLock { $0 }?.stop() }
    await onMount(options: ["--timeout", "120", "--continue=never"] + store.options) { stage in
      let folder = try stage.folder.makeFolder("origin")
      stage.manifest = ""
      let server = try Nginx(NginxSettings(.folder(folder)))
      nginx.withLock { $0 = server }
      for number in 0..<Self.files {
        try Self.make("\(folder)/\(number).bin", number, store)
        stage.manifest += server.url("/\(number).bin") + "\n"
      }
    } _: { scene in
      let mount = scene.mount
      let server = try mount.status().pid ?? 0
      for problem in Self.read(store.ranges[0], mount) { scene.expect(false, problem) }
      let once = ProcessMemory.peak(server)
      for problem in Self.read(store.ranges[1], mount) { scene.expect(false, problem) }
      let more = ProcessMemory.peak(server)
      let mapped = ProcessMemory.mapped(server)
      let read = Int64(Self.files) * store.ranges.reduce(0) { $0 + $1.count }
      let sent = nginx.withLock { $0?.accesses.reduce(0) { $0 + $1.bodyBytes } ?? 0 }
      let peaks = "peak \(once) KiB, then \(more) KiB, of which \(mapped) KiB are of files"
      print("\(store.rawValue): \(peaks); \(sent) bytes sent for \(read)")
      scene.expect(
        once > 0 && mapped > 0 && more - mapped <= Self.bound,
        "\(peaks), of \(Self.bound)")
      scene.expect(more <= once + (8 << 10), "it grows with what is moved: \(once) KiB, then \(more) KiB")
    }
  }
}

/// What /proc tells of a process's memory.
enum ProcessMemory {
  /// VmHWM: the most that was ever resident, in KiB; 0 when there is no such process.
  static func peak(_ process: Int32) -> Int { field("VmHWM:", process) }
  /// VmRSS: what is resident, in KiB.
  static func resident(_ process: Int32) -> Int { field("VmRSS:", process) }
  /// RssFile: what is resident of mapped files, in KiB: the program, its libraries, a database's index of its log.
  static func mapped(_ process: Int32) -> Int { field("RssFile:", process) }

  private static func field(_ name: String, _ process: Int32) -> Int {
    guard let file = fopen("/proc/\(process)/status", "re") else { return 0 }
    defer { fclose(file) }
    var line = [CChar](repeating: 0, count: 256)
    while fgets(&line, 256, file) != nil {
      let text = String(decoding: line.prefix { $0 != 0 }.map { UInt8(bitPattern: $0) }, as: UTF8.self)
      if text.utf8.starts(with: name.utf8) { return Int(text.filter(\.isNumber)) ?? 0 }
    }
    return 0
  }
}
