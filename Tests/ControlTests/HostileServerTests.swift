import Base
import Glibc
import Testing

@testable import Control

/// Root asks servers of other users: whatever they answer, root's command ends, and takes little memory.
@Suite struct HostileServerTests {
  private static func line(_ kind: ControlReply.Kind, _ fill: (inout ControlReply) -> Void = { _ in }) throws -> String
  {
    var reply = ControlReply(kind)
    fill(&reply)
    return String(decoding: try encodeLine(reply), as: UTF8.self)
  }
  private static func file(_ file: FileStatus = FileStatus(path: "a")) throws -> String {
    try line(.file) { $0.file = file }
  }
  private static func ready() throws -> String {
    try line(.ready) { $0.ready = FileReadiness(path: "a", state: .partial) }
  }
  private static func report() throws -> String { try line(.report) { $0.report = FetchReport() } }
  private static func done(_ next: String? = nil) throws -> String { try line(.done) { $0.next = next } }

  private typealias Question = @Sendable (ControlClient) throws(ControlFailure) -> Void
  private static let page: Question = { (client) throws(ControlFailure) in _ = try client.page(StatusQuery()) }
  private static let totals: Question = { (client) throws(ControlFailure) in _ = try client.totals(StatusQuery()) }
  private static let readiness: Question = { (client) throws(ControlFailure) in
    _ = try client.readiness(["a"], from: nil)
  }
  private static let fetch: Question = { (client) throws(ControlFailure) in _ = try client.fetch(["a"], wait: false) }
  private static let clear: Question = { (client) throws(ControlFailure) in _ = try client.clear(ClearOrder(.all)) }
  /// What `mediafs status` does: one page after the other.
  private static let list: Question = { (client) throws(ControlFailure) in
    var query = StatusQuery(all: true)
    repeat { query.after = try client.page(query).next } while query.after != nil
  }

  /// How a question to a server fails that says `pieces`, with a pause in seconds before each; nothing if it does not.
  private func failure(
    _ ask: Question, of limits: ControlClient.Limits = .init(), pause: Double = 0, _ pieces: [String]
  ) throws -> (kind: ControlFailure.Kind?, message: String) {
    let server = try ScriptedServer(pieces, pause: pause)
    do throws(ControlFailure) {
      try ask(try ControlClient.reach(server.folder.path, limits))
      return (nil, "")
    } catch { return (error.kind, error.message) }
  }

  @Test func anAnswerHasNoMoreFilesThanSome() throws {
    let files = String(repeating: try Self.file(), count: 1000)
    let plain = try failure(Self.page, Array(repeating: files, count: 101) + [try Self.done()])
    #expect(plain.kind == .malformed && plain.message.contains("too many files"), "\(plain)")
    let remote = try Self.line(.remote) { $0.paths = Array(repeating: "", count: 60_000) }
    let brief = try failure(Self.page, [remote, remote, try Self.done()])
    #expect(brief.message.contains("too many files"), "\(brief)")
    let ready = try failure(
      Self.readiness, [String(repeating: try Self.ready(), count: 1001), try Self.done()])
    #expect(ready.message.contains("too many files"), "\(ready)")
    var read = FileStatus(path: "a")
    read.readers = Array(repeating: ReaderStatus(pid: 1, process: "a", position: 0), count: ControlLimits.readers + 1)
    #expect(try failure(Self.page, [try Self.file(read), try Self.done()]).kind == .malformed)
    var sums = StatusTotals()
    sums.lines = Array(repeating: LineStatus(host: "h"), count: ControlLimits.lines + 1)
    let lines = try Self.line(.totals) { $0.totals = sums }
    #expect(try failure(Self.totals, [lines, try Self.done()]).kind == .malformed)
    var pieces = FileStatus(path: "a")
    pieces.ranges = Array(repeating: [0, 1], count: ControlLimits.ranges + 1)
    #expect(try failure(Self.page, [try Self.file(pieces), try Self.done()]).kind == .malformed)
  }

  @Test func aReportHasNumbersThatCanBe() throws {
    for fill: (inout FetchReport) -> Void in [
      { ($0.files, $0.complete, $0.failed) = (1, .max, 1) }, { $0.complete = -1 }, { $0.stored = .min },
      { $0.heldUp = .max }, { $0.unknownSizes = .min },
    ] {
      var report = FetchReport()
      fill(&report)
      let line = try Self.line(.report) { [report] in $0.report = report }
      let answer = try failure(Self.fetch, [line, try Self.done()])
      #expect(answer.kind == .malformed, "\(report): \(answer)")
    }
    // A server's sums of sizes that origins claim end at the greatest number.
    var report = FetchReport()
    (report.files, report.stored, report.size) = (20, .max, .max)
    let line = try Self.line(.report) { [report] in $0.report = report }
    #expect(try failure(Self.fetch, [line, try Self.done()]).kind == nil)
  }

  @Test func otherReportsHaveNumbersThatCanBe() throws {
    let rule: Question = { (client) throws(ControlFailure) in _ = try client.rule(.keep, ["a"]) }
    for (files, isPossible) in [(Int64(3), true), (.min, false), (.max, false)] {
      let cleared = try Self.line(.cleared) { $0.cleared = ClearReport(files: 1, keptFiles: files) }
      #expect(try failure(Self.clear, [cleared, try Self.done()]).kind == (isPossible ? nil : .malformed))
      let ruled = try Self.line(.ruled) {
        $0.ruled = RuleReport(); $0.ruled?.files = files
      }
      #expect(try failure(rule, [ruled, try Self.done()]).kind == (isPossible ? nil : .malformed))
    }
  }

  /// Commands show it on root's terminal.
  @Test func aServerNamesAPlainProgram() throws {
    let hello: Question = { (client) throws(ControlFailure) in _ = try client.hello() }
    for (program, isPlain) in [("/usr/bin/mediafs", true), ("x\u{1B}]52;c;AAAA\u{7}", false)] {
      let line = try Self.line(.hello) { $0.server = ServerIdentity(pid: 1, mountpoint: "/m", program: program) }
      #expect(try failure(hello, [line]).kind == (isPlain ? nil : .malformed))
    }
  }

  @Test func anAnswerHasNoMoreBytesThanSome() throws {
    let long = try Self.file(FileStatus(path: String(repeating: "x", count: 1000)))
    let page = try failure(Self.page, of: .init(bytes: 9000), Array(repeating: long, count: 9) + [try Self.done()])
    #expect(page.message.contains("more than 9000 bytes"), "\(page)")
    let report = try Self.line(.report) {
      $0.report = FetchReport()
      $0.message = String(repeating: "x", count: 1000)
    }
    let fetch = try failure(Self.fetch, of: .init(bytes: 9000), Array(repeating: report, count: 9) + [try Self.done()])
    #expect(fetch.message.contains("more than 9000 bytes"), "\(fetch)")
  }

  /// Each line comes well within the time, and all of them do not.
  @Test func theTimeOfAnAnswerBeginsOnce() throws {
    let totals = try Self.line(.totals) { $0.totals = StatusTotals() }
    let cleared = try Self.line(.cleared) { $0.cleared = ClearReport() }
    for (question, line, count) in [
      (Self.page, try Self.file(), 5), (Self.totals, totals, 1), (Self.readiness, try Self.ready(), 5),
      (Self.fetch, try Self.report(), 5), (Self.clear, cleared, 1),
    ] {
      let pieces = Array(repeating: line, count: count) + [try Self.done()]
      let late = try failure(question, of: .init(answer: 1.5, clear: 1.5), pause: count == 1 ? 1 : 0.5, pieces)
      #expect(late.kind == .silent, "\(line): \(late)")
    }
  }

  /// Who waits for a fetch waits for as many reports as it takes.
  @Test func aFetchThatIsWaitedForGoesOn() throws {
    let reports = Array(repeating: try Self.report(), count: 8) + [try Self.done()]
    let wait: Question = { (client) throws(ControlFailure) in _ = try client.fetch(["a"], wait: true) }
    #expect(try failure(wait, of: .init(answer: 2), pause: 0.4, reports).kind == nil)
  }

  @Test func aListingEnds() throws {
    let again = try failure(Self.list, [try Self.done("x"), try Self.done("x"), try Self.done()])
    #expect(again.message.contains("the same page again"), "\(again)")
    let empty = try (0..<30).map { try Self.done("\($0)") } + [try Self.done()]
    let slow = try failure(Self.list, of: .init(listing: 1), pause: 0.1, empty)
    #expect(slow.kind == .silent && slow.message.contains("has listed files for 1 s"), "\(slow)")
    let files = String(repeating: try Self.file(), count: 60_000)
    let pages = try ["1", "2", nil].map { try files + Self.done($0) }
    let totals = try Self.line(.totals) { $0.totals = StatusTotals() }
    let both: Question = { (client) throws(ControlFailure) in
      try Self.totals(client)
      try Self.list(client)
    }
    let more = try failure(both, [totals, try Self.done()] + pages)
    #expect(more.message.contains("more files than the 0 that it tells"), "\(more)")
  }
}

/// A server that says to its only client what it is told to, whatever that asks.
private final class ScriptedServer {
  let folder: TemporaryFolder
  private let thread: OwnedThread
  private let listener: Int32

  /// Says `pieces` one after the other, each after a pause in seconds.
  init(_ pieces: [String], pause: Double) throws {
    folder = try TemporaryFolder()
    // SOCK_STREAM is 1 on Linux but for MIPS. Swift 6.3's compiler does not find the name in this file.
    let descriptor = Glibc.socket(AF_UNIX, 1, 0)
    listener = descriptor
    let store = try FileDescriptor.open(folder.path, O_RDONLY | O_DIRECTORY)
    try #require(withControlAddress(in: store) { bind(descriptor, $0, $1) } == 0)
    try #require(listen(descriptor, 1) == 0)
    thread = OwnedThread(name: "scripted") {
      let peer = accept(descriptor, nil, nil)
      if peer < 0 { return }
      defer { close(peer) }
      for piece in pieces {
        usleep(useconds_t(pause * 1e6))
        var rest = Array(piece.utf8)[...]
        while !rest.isEmpty {
          let count = rest.withUnsafeBytes { send(peer, $0.baseAddress, $0.count, Int32(MSG_NOSIGNAL)) }
          if count <= 0 { return }
          rest = rest.dropFirst(count)
        }
      }
      // Until the client leaves: to close with requests unread would reset the connection.
      var byte: UInt8 = 0
      while recv(peer, &byte, 1, 0) > 0 {}
    }
  }

  deinit {
    shutdown(listener, Int32(SHUT_RDWR))
    thread.join()
    close(listener)
  }
}
