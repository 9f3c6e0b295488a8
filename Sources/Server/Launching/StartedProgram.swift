import Base
import CSystem
import Glibc

/// A program that the launcher started. What it says gets into the log, a few lines of it.
///
/// It is over when it has ended and nobody has its output open any more: what it leaves running in the background
/// counts, unless its output leads elsewhere.
final class StartedProgram {
  /// How many lines of its output are told, and how many bytes of each.
  private static let (mostLines, longest) = (100, 500)

  /// The file that it was started for, in the mount.
  let path: String
  let process: pid_t
  private let reader: FileDescriptor
  private var isOpen = true
  private(set) var hasEnded = false
  private var line: [UInt8] = []
  private var lines = 0

  init(_ words: [String], for path: String) throws(Errno) {
    let pipe = try Pipe()
    _ = csystem_fcntl(pipe.reader.rawValue, F_SETFL, O_NONBLOCK)
    let argv: [UnsafeMutablePointer<CChar>?] = words.map { strdup($0) } + [nil]
    defer { argv.forEach { free($0) } }
    process = try retrying { csystem_start_program(argv, STDIN_FILENO, pipe.writer.rawValue, pipe.writer.rawValue) }
    reader = pipe.reader
    self.path = path
  }

  var isOver: Bool { hasEnded && !isOpen }

  /// The descriptor to wait for; -1, which poll(2) leaves out, when there is nothing to come.
  var output: Int32 { isOpen ? reader.rawValue : -1 }

  /// Takes what it has written, some of it at a time.
  func read(_ tell: (LauncherWords.Kind, String) -> Void) {
    var piece = [UInt8](repeating: 0, count: 16 << 10)
    let count = Glibc.read(reader.rawValue, &piece, piece.count)
    if count < 0, [EAGAIN, EINTR].contains(errno) { return }
    isOpen = count > 0
    for byte in piece[..<max(0, count)] {
      if byte == UInt8(ascii: "\n") {
        told(tell)
      } else if line.count < Self.longest {
        line.append(byte)
      }
    }
    if !isOpen, !line.isEmpty { told(tell) }
  }

  /// A line is whole.
  private func told(_ tell: (LauncherWords.Kind, String) -> Void) {
    lines += 1
    if lines <= Self.mostLines { tell(.info, "\(path): its program says: \(String(decoding: line, as: UTF8.self))") }
    if lines == Self.mostLines + 1 { tell(.info, "\(path): its program says more, which is left out") }
    line = []
  }

  /// It ended with `status`, as waitpid(2) tells it.
  func ended(_ status: Int32, _ tell: (LauncherWords.Kind, String) -> Void) {
    hasEnded = true
    read(tell)  // why it failed comes before that it failed
    let (code, number) = (status >> 8 & 0xff, status & 0x7f)
    if number != 0 {
      tell(.warning, "\(path): its program (process \(process)) was killed by signal \(number)")
    } else if code != 0 {
      tell(.warning, "\(path): its program (process \(process)) ended with status \(code)")
    } else {
      tell(.debug, "\(path): its program (process \(process)) is done")
    }
  }
}
