import Base
import Glibc
import Testing

@testable import Control

/// What a live view asks for: what goes on, coarse ranges, requests by name.
@Suite struct ActivityTests {
  @Test func activeAndRangesGetToTheServer() throws {
    let server = try RunningServer([FileStatus(path: "a", ranges: (0..<500).map { [$0 * 10, $0 * 10 + $0 % 9 + 1] })])
    let client = try server.connect()
    var query = StatusQuery()
    query.active = true
    query.ranges = 20
    _ = try client.totals(query)
    let file = try #require(try client.page(query).files.first)
    #expect(file.ranges.count == 20 && file.ranges.first?.first == 0 && file.ranges.last?.last == 4995)
    #expect(server.handler.state.withLock { $0.queries.map(\.active) } == [true])
    #expect(server.handler.state.withLock { $0.queries.map(\.ranges) } == [20])
  }

  @Test(arguments: [
    #""active":true,"paths":["a"]"#, #""ranges":0"#, #""ranges":-1"#, #""ranges":8193"#, #""ranges":"many""#,
  ])
  func whatMakesNoSenseIsRefused(_ keys: String) throws {
    let server = try RunningServer([FileStatus(path: "a")])
    var peer = try RawPeer(server.folder.path)
    try peer.say("{\"version\":1,\"request\":\"status\",\(keys)}\n")
    #expect(try peer.reply()?.code == .malformed)
  }

  @Test func onlySmallGapsAreClosed() throws {
    for most in [1, 2, 3, 7, 64] {
      var random = Steps(state: UInt64(most))
      var file = FileStatus(path: "a", size: 1_000_000)
      var position: Int64 = 0
      while true {
        let start = position + Int64.random(in: 1...20_000, using: &random)
        let end = start + Int64.random(in: 1...20_000, using: &random)
        if end > 1_000_000 { break }
        file.ranges.append([start, end])
        position = end
      }
      let fine = file.ranges
      file.coarsen(to: most)
      let coarse = file.ranges
      #expect(coarse.count == min(most, fine.count))
      #expect(coarse.first?[0] == fine.first?[0] && coarse.last?[1] == fine.last?[1])
      #expect(fine.allSatisfy { range in coarse.contains { $0[0] <= range[0] && range[1] <= $0[1] } })
      // No gap that is left is smaller than one that was closed.
      let left = zip(coarse, coarse.dropFirst()).map { $1[0] - $0[1] }
      let closed = zip(fine, fine.dropFirst()).filter { before, after in
        coarse.contains { $0[0] <= before[0] && after[1] <= $0[1] }
      }.map { $1[0] - $0[1] }
      if let most = closed.max(), let least = left.min() { #expect(most <= least) }
      if let largest = closed.max() { #expect(largest <= 1_000_000 / Int64(most)) }
    }
  }

  @Test func everyKeyOfALineIsThere() throws {
    let line = try encodeLine(LineStatus(host: "h", rate: .infinity))
    #expect(try decodeLine(LineStatus.self, line).rate == 0)
    #expect(String(decoding: line, as: UTF8.self).contains("\"waitsUntil\":null"))
  }
}

/// The same numbers each time.
private struct Steps: RandomNumberGenerator {
  var state: UInt64

  mutating func next() -> UInt64 {
    state = state &* 6_364_136_223_846_793_005 &+ 1_442_695_040_888_963_407
    return state ^ (state >> 33)
  }
}
