import Base
import Glibc
import TestSupport
import Testing

@testable import Control

/// Clients of the control socket that do not keep to the protocol.
@Suite("Hostile clients")
struct ControlFuzzTests {
  /// Notes what reaches it.
  private final class Handler: ControlHandler {
    let paths = Lock<[String]>([])

    private func note(_ given: [String]?) { paths.withLock { $0 += given ?? [] } }
    /// A slash binds a pattern of one name to the root.
    private func notePatterns(_ given: [String]) {
      let slash = UInt8(ascii: "/")
      note(
        given.map { path in
          let name = path.utf8.dropFirst()
          return path.utf8.first == slash && !name.contains(slash) ? String(Substring(name)) : path
        })
    }
    func totals(_ query: StatusQuery) throws(ControlFailure) -> StatusTotals {
      note(query.paths)
      return StatusTotals()
    }
    func page(_ query: StatusQuery) throws(ControlFailure) -> StatusPage {
      note(query.paths)
      return StatusPage(files: [FileStatus(path: "a")], next: nil)
    }
    func fetch(_ paths: [String]) throws(ControlFailure) -> [FetchTarget] {
      note(paths)
      return []
    }
    func progress(of targets: [FetchTarget]) -> [FetchProgress] { [] }
    func clear(_ order: ClearOrder, isLeft: @escaping () -> Bool) throws(ControlFailure) -> ClearReport {
      if case .at(let paths) = order.files { note(paths) }
      return ClearReport()
    }
    func readiness(_ paths: [String], from: Double?) throws(ControlFailure) -> [FileReadiness] {
      note(paths)
      #expect(from.map { $0 >= 0 && $0 < 1e9 } ?? true)
      return []
    }
    func rule(_ word: RuleWord, _ paths: [String], isLeft: () -> Bool) throws(ControlFailure) -> RuleReport {
      notePatterns(paths)
      return RuleReport()
    }
    func reload(isLeft: () -> Bool) throws(ControlFailure) -> ReloadReport { ReloadReport() }
    func cancel(_ paths: [String]) throws(ControlFailure) -> ClearReport {
      notePatterns(paths)
      return ClearReport()
    }
    func set(_ values: [String: String], host: String?) throws(ControlFailure) -> [SettingStatus] { [] }
    func stop() {}
    let events = EventHub()
    func metrics() throws(ControlFailure) -> String { "" }
    var upgradeFacts: UpgradeFacts {
      UpgradeFacts(formats: ServerFormats(helper: 1, memory: 1, store: 1), program: nil, serves: true)
    }
    func agreeToUpgrade(to program: ProgramFile) throws(ControlFailure) {}
    func handOver() {}
  }

  private static let requests: [[UInt8]] = [
    #"{"version":1,"request":"hello"}"#, #"{"version":1,"request":"metrics"}"#, #"{"version":1,"request":"events"}"#,
    #"{"version":1,"request":"status","paths":["a"],"story":true}"#,
    #"{"version":1,"request":"status","paths":["a/b","./c//d/"],"totals":true,"limit":3,"after":"1,2/3"}"#,
    #"{"version":1,"request":"fetch","paths":["a"],"wait":true}"#, #"{"version":1,"request":"clear","paths":["a"]}"#,
    #"{"version":1,"request":"rule","rule":"keep","paths":["a/*"]}"#,
    #"{"version":1,"request":"cancel","paths":["a"]}"#,
    #"{"version":1,"request":"set","values":{"limit-rate":"1M"},"host":"https://a"}"#,
    #"{"version":1,"request":"clear","all":true}"#, #"{"version":1,"request":"ready","paths":["a"],"from":12.5}"#,
  ].map { Array(($0 + "\n").utf8) }
  private static let words = tokens(
    "..", "/..", "../", "/", "\\u0000", "\\u002e\\u002e", "\\/", "\"", "{", "}", "[", "]", ",", ":", "null", "true",
    "-1",
    "1e400", "18446744073709551616", "\n", "\\ud800", "\u{301}", "\0", "\u{FEFF}", "\"paths\":", "\"all\":true,", "wait"
  )

  /// A whole conversation at once, the peer's side then half closed: each line gets its answer, whatever it was, and no
  /// path that leads out reaches the handler.
  @Test func everyLineIsAnsweredAndNoPathLeadsOut() throws {
    let handler = Handler()
    var reached = 0
    try Fuzzing("control", cases: 1500).run { random, place in
      var ends: [Int32] = [-1, -1]
      try #require(socketpair(AF_UNIX, Int32(SOCK_STREAM.rawValue), 0, &ends) == 0)
      let peer = FileDescriptor(owning: ends[1])
      var said: [UInt8] = []
      for _ in 0..<Int.random(in: 1...4, using: &random) {
        let request = Self.requests.randomElement(using: &random) ?? []
        said += random.oneIn(4) ? request : random.mutated(request, tokens: Self.words)
      }
      if random.oneIn(2) { said.append(10) }
      try #require(said.withUnsafeBytes { write(peer.rawValue, $0.baseAddress, $0.count) } == said.count)
      shutdown(peer.rawValue, Int32(SHUT_WR))
      do {
        var patience = ControlListener.Patience()
        patience.request = 20
        patience.report = 0.001
        var session = ControlSession(
          socket: try ControlSocket(owning: FileDescriptor(owning: ends[0])), handler: handler,
          identity: ServerIdentity(pid: 1, mountpoint: "/m", program: "test"), patience: patience)
        session.run()
      }
      var heard: [UInt8] = []
      var piece = [UInt8](repeating: 0, count: 1 << 16)
      while let count = try? retrying({ read(peer.rawValue, &piece, piece.count) }), count > 0 {
        heard += piece[..<count]
      }
      let lines = said.count { $0 == 10 }
      let answers = heard.split(separator: 10)
      // Several lines answer one; a client that waits for a fetch and speaks again ends the waiting.
      #expect(lines == 0 || !answers.isEmpty, "\(place)")
      for answer in answers {
        let reply = try decodeLine(ControlReply.self, Array(answer))
        if let message = reply.message { #expect(message.utf8.count < 400, "\(place)") }
      }
      for path in handler.paths.withLock({ paths in
        defer { paths = [] }; return paths
      }) {
        reached += 1
        let parts = path.utf8.split(separator: UInt8(ascii: "/"), omittingEmptySubsequences: false)
        let isPlain = parts.allSatisfy { !$0.elementsEqual("..".utf8) && !$0.elementsEqual(".".utf8) }
        #expect(
          isPlain && !path.utf8.contains(0) && path.utf8.first != UInt8(ascii: "/"),
          "\(place): \(path.debugDescription)")
      }
    }
    #expect(reached > 0)
  }

  /// Where a path argument leads is found by bytes, as the kernel does.
  @Test func argumentsAreResolvedByBytes() {
    func resolve(_ argument: String) -> MountPath? {
      MountPath.resolve(argument, from: "/", mountpoints: ["/mnt/caf\u{E9}"]) { _ in nil }
    }
    #expect(resolve("/mnt/caf\u{E9}/\u{301}x")?.path.utf8.elementsEqual("\u{301}x".utf8) == true)
    #expect(resolve("/mnt/cafe\u{301}/x") == nil)
    Fuzzing("arguments", cases: 2000).run { random, place in
      let bytes = random.mutated(
        Array("/mnt/caf\u{E9}/a/../b".utf8), tokens: tokens("..", "/", "//", "./", "\u{301}", "mnt"))
      let text = String(decoding: bytes, as: UTF8.self)
      for path in [resolve(text)?.path, MountPath.relative(text)].compactMap({ $0 }) {
        let parts = path.utf8.split(separator: UInt8(ascii: "/"))
        #expect(parts.allSatisfy { !$0.elementsEqual("..".utf8) }, "\(place): \(text.debugDescription)")
      }
    }
  }
}
