import Base
import CSystem
import Glibc
import Manifest

/// The resolvers of a launcher: at most one program each, which runs from its first ask on.
///
/// A program that writes what nobody asked for, or more than an answer may have, or that reads no asks, is ended. Its
/// server decides when it is asked again (docs/RESOLVERS.md).
struct Resolvers {
  typealias Tell = (LauncherWords.Kind, String) -> Void

  private let defined: [Resolver]
  private var running: [ResolverProgram] = []

  init(_ request: MountRequest) { defined = request.resolvers }

  /// Each program with its arguments, and the option that names it.
  var commands: [([String]?, String)] { defined.map { ($0.words, MountOption.resolver) } }

  /// What to wait for.
  var events: [pollfd] { running.flatMap(\.events) }

  /// Asks a resolver, whose program is started if it does not run. False if no option defines it.
  mutating func ask(
    _ name: String, _ line: String, _ tell: Tell, find: ([String]) -> Result<String, Launcher.NotFound>
  ) -> Bool {
    guard let resolver = defined.first(where: { $0.name == name }) else { return false }
    if !running.contains(where: { $0.name == name }) {
      do throws(Errno) {
        switch find(resolver.words) {
        case .failure(let why):
          tell(.ended, "\(name)\0\(why.message)")
          return true
        case .success(let path):
          let program = try ResolverProgram(name, [path] + resolver.words.dropFirst())
          tell(.debug, "the resolver \(name) is process \(program.process)")
          running.append(program)
        }
      } catch {
        tell(.ended, "\(name)\0it cannot be started: \(error)")
        return true
      }
    }
    running.first { $0.name == name }?.ask(line)
    removeEnded(tell)
    return true
  }

  /// Ends the program of a resolver, and what it started. False if no option defines it.
  mutating func end(_ name: String) -> Bool {
    for program in running where program.name == name { program.end() }
    running.removeAll { $0.name == name }
    return defined.contains { $0.name == name }
  }

  /// Reads what programs have written, and writes what they have not read yet.
  mutating func work(_ tell: Tell) {
    for program in running { program.work { tell(.answer, "\(program.name)\0\($0)") } }
    removeEnded(tell)
  }

  private mutating func removeEnded(_ tell: Tell) {
    for program in running {
      guard let why = program.fault else { continue }
      program.end()
      tell(.ended, "\(program.name)\0\(why)")
    }
    running.removeAll { $0.fault != nil }
  }

  func signal(_ number: Int32) {
    for program in running { kill(-program.process, number) }
  }
}

/// The running program of a resolver.
private final class ResolverProgram {
  /// The most bytes of asks that it has not read.
  private static let mostUnread = 1 << 20

  let name: String
  let process: pid_t
  /// Why it is of no use any more; nil while it is.
  private(set) var fault: String?
  private let input: FileDescriptor
  private let output: FileDescriptor
  private var unread: [UInt8] = []
  private var line: [UInt8] = []
  /// How many answers it owes.
  private var owed = 0

  init(_ name: String, _ words: [String]) throws(Errno) {
    self.name = name
    let asks = try Pipe()
    let answers = try Pipe()
    // What it says on its standard error may have links in it.
    let errors = try FileDescriptor.open("/dev/null", O_WRONLY)
    let argv: [UnsafeMutablePointer<CChar>?] = words.map { strdup($0) } + [nil]
    defer { argv.forEach { free($0) } }
    process = try retrying {
      csystem_start_program(argv, asks.reader.rawValue, answers.writer.rawValue, errors.rawValue)
    }
    for end in [asks.writer.rawValue, answers.reader.rawValue] { _ = csystem_fcntl(end, F_SETFL, O_NONBLOCK) }
    input = asks.writer
    output = answers.reader
  }

  var events: [pollfd] {
    [
      pollfd(fd: output.rawValue, events: Int16(POLLIN), revents: 0),
      pollfd(fd: unread.isEmpty ? -1 : input.rawValue, events: Int16(POLLOUT), revents: 0),
    ]
  }

  func ask(_ line: String) {
    if unread.count > Self.mostUnread { return fault = "it reads no asks" }
    unread += Array(line.utf8) + [UInt8(ascii: "\n")]
    owed += 1
    write()
  }

  func work(_ answered: (String) -> Void) {
    write()
    read(answered)
  }

  private func write() {
    while !unread.isEmpty, fault == nil {
      let count = Glibc.write(input.rawValue, unread, unread.count)
      if count < 0 {
        if errno == EINTR { continue }
        if errno != EAGAIN { fault = "it has closed its standard input" }
        return
      }
      unread.removeFirst(count)
    }
  }

  /// Takes what it has written, some of it at a time.
  private func read(_ answered: (String) -> Void) {
    var piece = [UInt8](repeating: 0, count: 16 << 10)
    let count = Glibc.read(output.rawValue, &piece, piece.count)
    if count < 0 {
      if ![EAGAIN, EINTR].contains(errno) { fault = "its output cannot be read: \(Errno.current)" }
      return
    }
    if count == 0, fault == nil { fault = "it has ended" }
    for byte in piece[..<count] where fault == nil {
      if byte != UInt8(ascii: "\n") {
        line.append(byte)
        if line.count > ResolverAnswer.longest { fault = "its answer is longer than \(ResolverAnswer.longest) bytes" }
        continue
      }
      if owed == 0 {
        fault = "it says what nobody asked"
      } else {
        owed -= 1
        // A zero would be taken for a separator; no JSON has one.
        answered(String(decoding: line, as: UTF8.self).replacing("\0", with: "?"))
      }
      line = []
    }
  }

  /// Ends it, and what it started in its group.
  func end() { kill(-process, SIGKILL) }
}
