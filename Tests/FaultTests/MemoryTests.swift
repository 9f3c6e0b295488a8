import Base
import Glibc
import TestSupport
import Testing

/// The memory of a server at full speed: a bound that neither files, nor their sizes, nor what was moved goes beyond.
@Suite("Memory")
struct MemoryTests {
  /// What the server may ever take, in KiB.
  private static let bound = 64 << 10
  private static let files = 64
  private static let size: Int64 = 5 << 30

  enum Store: String, CaseIterable, Sendable, CustomTestStringConvertible {
    case roomy = "a store with room"
    case full = "a store that is full"
    var testDescription: String { rawValue }
    var options: [String] { self == .roomy ? [] : ["--min-free", "1000000G"] }
    /// Of each file, at first.
    var piece: Int64 { self == .roomy ? 4 << 20 : 2 << 20 }
  }

  /// Reads a range of every file, each by a reader of its own; what went wrong.
  private static func read(_ range: ByteRange, _ mount: FaultMount) -> [String] {
    let bodies = (0..<files).map { number -> @Sendable () -> String? in
      {
        let descriptor = open(mount.file("\(number).bin"), O_RDONLY | O_CLOEXEC)
        guard descriptor >= 0 else { return "the open of \(number): \(Errno.current)" }
        defer { close(descriptor) }
        var buffer = [UInt8](repeating: 1, count: 128 << 10)
        var offset = range.start
        while offset < range.end {
          let count = pread(descriptor, &buffer, min(buffer.count, Int(range.end - offset)), Int(offset))
          if count <= 0 { return "\(number) at \(offset): \(count < 0 ? Errno.current.description : "the end")" }
          // The files are holes: zeros.
          if buffer[0] != 0 || buffer[count - 1] != 0 { return "\(number) at \(offset): wrong bytes" }
          offset += Int64(count)
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
        let file = try FileDescriptor.open("\(folder)/\(number).bin", O_RDWR | O_CREAT)
        if ftruncate(file.rawValue, Int(Self.size)) != 0 { throw Errno.current }
        stage.manifest += server.url("/\(number).bin") + "\n"
      }
    } _: { scene in
      let mount = scene.mount
      let server = try mount.status().pid ?? 0
      let piece = store.piece
      for problem in Self.read(ByteRange(0, piece), mount) { scene.expect(false, problem) }
      let once = ProcessMemory.peak(server)
      // Around 4 GiB, and three times as much.
      let far: Int64 = 4 << 30
      for problem in Self.read(ByteRange(at: far - piece, count: 3 * piece), mount) { scene.expect(false, problem) }
      let more = ProcessMemory.peak(server)
      let read = Int64(Self.files) * 4 * piece
      let sent = nginx.withLock { $0?.accesses.reduce(0) { $0 + $1.bodyBytes } ?? 0 }
      print("\(store.rawValue): peak \(once) KiB, then \(more) KiB; \(sent) bytes sent for \(read)")
      scene.expect(once > 0 && more <= Self.bound, "peak \(once) KiB, then \(more) KiB of \(Self.bound)")
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
