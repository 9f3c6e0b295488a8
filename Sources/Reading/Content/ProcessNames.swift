import Base
import Glibc

/// What /proc tells of the programs that read (proc(5)).
enum ProcessNames {
  /// The name of a process or thread, at most 15 bytes; nil when it has ended or its name cannot be read.
  static func name(of process: Int32) -> String? {
    read("/proc/\(process)/comm", most: 64) { bytes in String(decoding: bytes.prefix { $0 != 10 }, as: UTF8.self) }
  }

  /// The process of a thread; nil when that has ended or cannot be found out.
  static func process(ofThread thread: Int32) -> Int32? {
    read("/proc/\(thread)/status", most: 1024) { bytes in
      String(decoding: bytes, as: UTF8.self).split(separator: "\n").first { $0.hasPrefix("Tgid:") }
        .flatMap { Int32($0.dropFirst(5).drop { $0 == "\t" || $0 == " " }) }
    } ?? nil
  }

  private static func read<Value>(
    _ path: String, most: Int, _ body: (UnsafeMutableRawBufferPointer.SubSequence) -> Value
  ) -> Value? {
    guard let file = try? FileDescriptor.open(path, O_RDONLY) else { return nil }  // it ended, or is hidden
    return withUnsafeTemporaryAllocation(byteCount: most, alignment: 1) { buffer in
      guard let count = try? file.read(at: 0, into: buffer), count > 0 else { return nil }
      return body(buffer[..<count])
    }
  }
}

/// The program that a reader runs.
struct Program: Sendable {
  /// Whether it looks at many files and plays none.
  var isLooker = false
  /// The number of its process. 0: nothing is known of it.
  var process: Int
  /// The same for all processes of one name; the process's own where the name cannot be read.
  var number: Int

  /// Both numbers, each once.
  var numbers: Set<Int> { [process, number] }
}

extension Program {
  /// The program of a thread. `looks`: it is known to look.
  init(ofThread thread: Int32, looks: Bool = false) {
    let process = thread > 0 ? ProcessNames.process(ofThread: thread) ?? thread : 0
    let name = process > 0 ? ProcessNames.name(of: process) : nil
    let threadName = thread == process ? name : ProcessNames.name(of: thread)
    self.init(
      isLooker: looks || threadName.map(ScanPrograms.contains) ?? false, process: Int(process),
      number: name?.hashValue ?? Int(process))
  }
}
