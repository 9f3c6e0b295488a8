import Base
import CSystem
import Glibc
import TestSupport
import Testing

@testable import Control

/// A peer that speaks bytes, not our client.
struct RawPeer {
  let socket: ControlSocket
  var lines: LineReader

  init(_ store: String) throws {
    let folder = try FileDescriptor.open(store, O_RDONLY | O_DIRECTORY)
    let descriptor = FileDescriptor(owning: Glibc.socket(AF_UNIX, Int32(SOCK_STREAM.rawValue), 0))
    try #require(withControlAddress(in: folder) { connect(descriptor.rawValue, $0, $1) } == 0)
    socket = try ControlSocket(owning: descriptor)
    lines = LineReader(socket)
  }

  func say(_ text: String) throws { try socket.send(Array(text.utf8), until: .now.adding(seconds: 10)) }

  mutating func reply() throws -> ControlReply? {
    guard let line = try lines.next(until: .now.adding(seconds: 20)) else { return nil }
    return try decodeLine(ControlReply.self, line)
  }
}

@Suite struct HostilePeerTests {
  @Test(arguments: [
    "", "hello", "{", "[]", "null", "{}", "{\"version\":1}", "{\"version\":1,\"request\":\"dance\"}",
    "{\"version\":\"1\",\"request\":\"hello\"}", "{\"version\":1,\"request\":\"fetch\"}",
    "{\"version\":1,\"request\":\"fetch\",\"paths\":[]}", "{\"version\":1,\"request\":\"fetch\",\"paths\":[1]}",
    "{\"version\":1,\"request\":\"clear\"}", "{\"version\":1,\"request\":\"clear\",\"all\":true,\"paths\":[\"a\"]}",
    "{\"version\":1,\"request\":\"clear\",\"all\":false}", "{\"version\":1,\"request\":\"status\",\"limit\":-1}",
    "{\"version\":1,\"request\":\"status\",\"limit\":501}", "{\"version\":1e999,\"request\":\"hello\"}",
    "{\"version\":1,\"request\":\"status\",\"limit\":9223372036854775808}", "\u{0}\u{1}\u{7F}", "GET / HTTP/1.1\r",
  ])
  func whatIsNoRequestIsAnsweredAndTheNextOneServed(_ line: String) throws { try expectMalformed(line) }

  /// A count of a million names ends when the client leaves, and when the server does.
  @Test(arguments: [true, false]) func longWorkEndsWithWhoWaitsForIt(leaves: Bool) throws {
    let server = try RunningServer([FileStatus(path: "a")])
    server.handler.state.withLock { $0.counts = true }
    var peer: RawPeer? = try RawPeer(server.folder.path)
    try peer?.say("{\"version\":1,\"request\":\"rule\",\"rule\":\"keep\",\"paths\":[\"a\"]}\n")
    try waitUntil { server.handler.state.withLock { !$0.ruled.isEmpty } }
    if leaves { peer = nil } else { server.listener.stop() }
    #expect(eventually { server.handler.state.withLock { $0.abandoned == 1 } })
    withExtendedLifetime(peer) {}
  }

  @Test func deepAndLongRequestsAreAnsweredToo() throws {
    try expectMalformed(String(repeating: "[", count: 900_000))
    try expectMalformed("{\"a\":" + String(repeating: "{\"a\":", count: 150_000))
    let paths = String(repeating: "\"\",", count: 10_001)
    try expectMalformed("{\"version\":1,\"request\":\"fetch\",\"paths\":[\(paths)\"\"]}")
  }

  /// Says the line, expects to hear that it is no request, and that the next one is served.
  private func expectMalformed(_ line: String) throws {
    let server = try RunningServer([FileStatus(path: "a")])
    var peer = try RawPeer(server.folder.path)
    try peer.say(line + "\n")
    let answer = try #require(try peer.reply())
    #expect(answer.reply == .failed)
    #expect(answer.code == .malformed)
    #expect(answer.message?.isEmpty == false)
    #expect(answer.message.map { $0.utf8.count < 300 } == true)
    try peer.say("{\"version\":1,\"request\":\"hello\"}\n")
    #expect(try peer.reply()?.server?.program == "test")
    #expect(server.handler.state.withLock { $0.cleared.isEmpty })
  }

  @Test func invalidUTF8IsRefused() throws {
    let server = try RunningServer()
    var peer = try RawPeer(server.folder.path)
    try peer.socket.send([0xFF, 0xFE, 0x80, UInt8(ascii: "\n")], until: .now.adding(seconds: 10))
    #expect(try peer.reply()?.code == .malformed)
  }

  @Test func anotherVersionIsTold() throws {
    let server = try RunningServer()
    var peer = try RawPeer(server.folder.path)
    try peer.say("{\"version\":2,\"request\":\"hello\"}\n")
    #expect(try peer.reply()?.code == .version)
  }

  @Test func aLineWithoutEndIsCutOff() throws {
    let server = try RunningServer()
    var peer = try RawPeer(server.folder.path)
    let piece = String(repeating: "x", count: 1 << 16)
    // The server may close before all is said.
    do { for _ in 0..<32 { try peer.say(piece) } } catch let failure as ControlFailure {
      #expect(failure.kind == .gone)
    }
    // Its answer may be lost to the reset that unread bytes cause; what matters is that it lets go.
    do {
      if let answer = try peer.reply() { #expect(answer.code == .malformed) }
    } catch let failure as ControlFailure { #expect(failure.kind == .gone) }
    #expect(try server.connect().hello().program == "test")
  }

  @Test func aSilentPeerIsLetGo() throws {
    let server = try RunningServer(patience: 1.5)
    var peer = try RawPeer(server.folder.path)
    try peer.say("{\"version\":1")
    #expect(try peer.reply()?.code == .silent)
    #expect(try peer.reply() == nil)
  }

  @Test func aPeerThatDoesNotReadIsLetGo() throws {
    let files = (0..<500).map { FileStatus(path: String(repeating: "x", count: 4000) + "\($0)") }
    let server = try RunningServer(files, patience: 0.2)
    let peer = try RawPeer(server.folder.path)
    do {
      for _ in 0..<200 { try peer.say("{\"version\":1,\"request\":\"status\",\"all\":true}\n") }
    } catch let failure as ControlFailure { #expect(failure.kind == .gone) }
    // The thread is free again: stopping waits for it.
    server.listener.stop()
  }

  @Test func noMoreThanSomeAtOnce() throws {
    let server = try RunningServer()
    var peers: [RawPeer] = []
    for _ in 0..<ControlLimits.clients {
      var peer = try RawPeer(server.folder.path)
      try peer.say("{\"version\":1,\"request\":\"hello\"}\n")
      #expect(try peer.reply()?.reply == .hello)
      peers.append(peer)
    }
    #expect(throws: ControlFailure(.busy, "the server has 16 clients already: try again")) {
      try server.connect().hello()
    }
    peers.removeLast()
    // The place is free as soon as the server has seen the peer go.
    var served = false
    for _ in 0..<500 where !served {
      do {
        _ = try server.connect().hello()
        served = true
      } catch let failure as ControlFailure where failure.kind == .busy { usleep(10_000) }
    }
    #expect(served)
  }

  @Test func aClientThatLeavesAWaitingFetchIsNoticed() throws {
    let server = try RunningServer([FileStatus(path: "a")])
    do {
      var peer = try RawPeer(server.folder.path)
      try peer.say("{\"version\":1,\"request\":\"fetch\",\"paths\":[\"a\"],\"wait\":true}\n")
      #expect(try peer.reply()?.reply == .report)
    }
    server.listener.stop()  // returns only when the session's thread is gone
  }

  @Test func stoppingEndsSessionsThatWait() throws {
    let server = try RunningServer([FileStatus(path: "a")])
    var idle = try RawPeer(server.folder.path)
    var waiting = try RawPeer(server.folder.path)
    try waiting.say("{\"version\":1,\"request\":\"fetch\",\"paths\":[\"a\"],\"wait\":true}\n")
    #expect(try waiting.reply()?.reply == .report)
    server.listener.stop()
    #expect(try idle.reply() == nil)
  }

  @Test func randomBytesNeverBringItDown() throws {
    var random = SeededRandom.fromEnvironment()
    let server = try RunningServer([FileStatus(path: "a")])
    let valid = Array("{\"version\":1,\"request\":\"status\",\"paths\":[\"a\"],\"totals\":true,\"limit\":3}\n".utf8)
    for _ in 0..<300 {
      let peer = try RawPeer(server.folder.path)
      var bytes = valid
      for _ in 0..<Int.random(in: 1...6, using: &random) {
        bytes[Int.random(in: 0..<bytes.count, using: &random)] = UInt8.random(in: 0...255, using: &random)
      }
      do { try peer.socket.send(bytes, until: .now.adding(seconds: 5)) } catch { #expect(error.kind == .gone) }
    }
    var served = false
    for _ in 0..<500 where !served {
      do {
        served = try server.connect().hello().program == "test"
      } catch let failure as ControlFailure where failure.kind == .busy { usleep(10_000) }
    }
    #expect(served, "seed \(random.seed)")
  }
}
