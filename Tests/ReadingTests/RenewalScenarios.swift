import Base
import Fetching
import Manifest
import Reading
import TestSupport
import Testing

@testable import Storing

/// Entries that name a resolver: when it is asked, and what its links may bring.
@Suite struct RenewalScenarios {
  static let megabyte: Int64 = 1 << 20
  static let size = 8 * megabyte

  /// A room with one such entry, whose links `http://cdn/0`, `http://cdn/1`… lead to its bytes.
  func bench(
    _ resolver: FakeResolver, links: Int = 8, options: ReadingOptions = .testing, checksum: Checksum? = nil,
    _ change: (Int, inout FakeResource) -> Void = { _, _ in }
  ) throws -> Bench {
    var entry = Bench.entry("a.mp4", 1, urls: ["http://page/watch?v=1"])
    entry.resolver = "r"
    entry.checksum = checksum
    var resources: [String: FakeResource] = [:]
    for number in 0..<links {
      var resource = FakeResource(name: "a.mp4", size: Self.size)
      change(number, &resource)
      resources["http://cdn/\(number)"] = resource
    }
    let bench = try Bench([entry], resources, options: options)
    resolver.serve(bench.system)
    return bench
  }

  private static let numbered: @Sendable (ResolverAsk, Int) -> String? = {
    "\"url\":\"http://cdn/\($1)\",\"size\":\(size)"
  }
  static let denied = TransferFailure(kind: .denied, status: 403, message: "refused (HTTP 403)")

  /// Links refuse once they have answered so many requests.
  private func wearOut(_ bench: Bench, after most: Int) {
    var used: [String: Int] = [:]
    bench.service.answer = { request, resource in
      used[request.url, default: 0] += 1
      var resource = resource
      if used[request.url, default: 0] > most { resource.failure = Self.denied }
      return resource
    }
  }

  func readAll(_ bench: Bench, _ inode: Inode, step: Int64 = 128 << 10, version: UInt64 = 1) {
    for offset in stride(from: 0, to: Self.size, by: Int(step)) {
      bench.expectBytes(inode, offset, Int(step), of: "a.mp4", version: version)
    }
  }

  @Test("The first request asks for a link, nobody requests the entry's own URL, and the link serves all others")
  func first() throws {
    let resolver = FakeResolver { ask, _ in
      "\"url\":\"http://cdn/0\",\"headers\":{\"X-A\":\"1\"},\"cookies\":\"c=2\""
    }
    let bench = try bench(resolver)
    bench.run(10, step: 0.1)
    #expect(resolver.asks.isEmpty)
    readAll(bench, try bench.opened("a.mp4"))
    #expect(resolver.reasons == ["first"] && resolver.asks.first?.source == "http://page/watch?v=1")
    #expect(bench.service.requests.allSatisfy { $0.url == "http://cdn/0" && $0.isSecret })
    #expect(bench.service.requests.allSatisfy { $0.headers.map(\.name) == ["X-A", "Cookie"] })
    #expect(bench.service.sent == Self.size)
  }

  @Test("A link that dies under a reader is replaced in no time of its own, and no byte comes twice")
  func deadLinks() throws {
    let resolver = FakeResolver(Self.numbered)
    let bench = try bench(resolver, links: 100)
    wearOut(bench, after: 6)
    let inode = try bench.opened("a.mp4")
    for offset in stride(from: 0, to: Self.size, by: 128 << 10) {
      bench.expectBytes(inode, offset, 128 << 10, of: "a.mp4", within: 1.5)
    }
    #expect(resolver.asks.count > 2 && Set(resolver.reasons.dropFirst()) == ["403"], "\(resolver.reasons)")
    #expect(resolver.asks.last?.size == Self.size && resolver.asks.last?.validator == "\"1\"")
    #expect(bench.service.sent == Self.size)
    #expect(try bench.inode("a.mp4") == inode)
  }

  @Test("A link is replaced before it ends, only when a request is coming, and requests go on meanwhile")
  func soon() throws {
    let resolver = FakeResolver { _, number in
      number == 0 ? "\"url\":\"http://cdn/0\",\"expires\":1100" : "\"url\":\"http://cdn/1\",\"expires\":9000"
    }
    var options = ReadingOptions.testing
    options.continuation = .never
    let bench = try bench(resolver, options: options)
    let inode = try bench.opened("a.mp4")
    bench.expectBytes(inode, 0, 4096, of: "a.mp4")
    // The time is 1000 at the beginning: the end is near, but nobody reads.
    bench.run(90, step: 0.1)
    #expect(resolver.reasons == ["first"])
    bench.expectBytes(inode, 4 * Self.megabyte, 4096, of: "a.mp4")
    #expect(resolver.reasons == ["first", "soon"])
    bench.run(1)
    bench.expectBytes(inode, 6 * Self.megabyte, 4096, of: "a.mp4")
    #expect(Set(bench.service.requests.map(\.url)) == ["http://cdn/0", "http://cdn/1"])
    #expect(bench.service.requests.last?.url == "http://cdn/1" && resolver.asks.count == 2)
  }

  @Test("Where a new link has other tags, two stored windows are compared, and then it goes on")
  func comparedSeam() throws {
    let resolver = FakeResolver(Self.numbered)
    let bench = try bench(resolver, links: 100) { number, resource in
      resource.etag = number == 2 ? nil : "\"tag \(number)\""
      resource.lastModified = 1_600_000_000 + Int64(number)
    }
    wearOut(bench, after: 8)
    let inode = try bench.opened("a.mp4")
    readAll(bench, inode)
    #expect(resolver.asks.count > 2, "\(resolver.reasons)")
    #expect(try bench.inode("a.mp4") == inode)
    let extra = Int64(resolver.asks.count - 1) * 128 << 10
    #expect(bench.service.sent > Self.size && bench.service.sent <= Self.size + extra)
  }

  @Test(
    "A new link to other bytes of the same length is another version, and nothing is mixed", arguments: [false, true])
  func otherBytes(hasChecksum: Bool) throws {
    let resolver = FakeResolver(Self.numbered)
    // Readers have the bytes before a checksum is compared.
    let checksum = hasChecksum ? Checksum(algorithm: .md5, digest: [UInt8](repeating: 0, count: 16)) : nil
    let bench = try bench(resolver, checksum: checksum) { number, resource in
      if number > 0 { resource.change() }
    }
    bench.service.answer = { request, resource in
      var resource = resource
      if request.url.hasSuffix("/0"), (request.range?.start ?? 0) >= Self.megabyte { resource.failure = Self.denied }
      return resource
    }
    let inode = try bench.opened("a.mp4")
    bench.expectBytes(inode, 0, 128 << 10, of: "a.mp4")
    bench.run(3)
    #expect(bench.answer(bench.read(inode, 6 * Self.megabyte, 4096)) == .error(.stale))
    readAll(bench, try bench.opened("a.mp4"), version: 2)
  }

  @Test("A page or another length asks for another link at once", arguments: ["html", "size"])
  func elsewhere(_ why: String) throws {
    let resolver = FakeResolver(Self.numbered)
    let bench = try bench(resolver)
    bench.service.answer = { request, resource in
      var resource = resource
      if request.url.hasSuffix("/0"), (request.range?.start ?? 0) >= Self.megabyte {
        if why == "html" { resource.mediaType = "text/html" }
        (resource.size, resource.etag) = (resource.size - 1, "\"p\"")
      }
      return resource
    }
    let inode = try bench.opened("a.mp4")
    bench.expectBytes(inode, 0, 128 << 10, of: "a.mp4")
    bench.run(3)
    bench.expectBytes(inode, 6 * Self.megabyte, 4096, of: "a.mp4", within: 2)
    #expect(resolver.reasons == ["first", why])
    #expect(try bench.inode("a.mp4") == inode)
  }

  @Test("A link to another length than its resolver says is replaced before anything is known of the file")
  func liesAboutTheLength() throws {
    let resolver = FakeResolver(Self.numbered)
    let bench = try bench(resolver) { number, resource in
      if number == 0 { (resource.name, resource.size) = ("another", 1000) }
    }
    let reply = bench.answer(bench.open(try bench.inode("a.mp4")), within: 2)
    #expect(reply == .opened(directIO: false))
    bench.expectBytes(try bench.inode("a.mp4"), 0, 4096, of: "a.mp4")
    #expect(resolver.reasons == ["first", "size"])
  }

  @Test("A resolver that names a wrong length is asked once more, and then the origin is believed; 0 is no length")
  func wrongLength() throws {
    for (size, reasons) in [(1000, ["first", "size"]), (0, ["first"])] {
      let resolver = FakeResolver { "\"url\":\"http://cdn/\($1)\",\"size\":\(size)" }
      let bench = try bench(resolver)
      let inode = try bench.inode("a.mp4")
      #expect(bench.answer(bench.open(inode), within: 2) == .opened(directIO: false))
      readAll(bench, inode)
      #expect(resolver.reasons == reasons)
    }
  }

  @Test("A reader waits for a link that begins within seconds, and nothing is requested before")
  func beginsSoon() throws {
    let resolver = FakeResolver { _, _ in "\"url\":\"http://cdn/0\",\"not_before\":1005" }
    let bench = try bench(resolver)
    let inode = try bench.inode("a.mp4")
    let ticket = bench.open(inode)
    bench.run(4)
    #expect(bench.port.reply(to: ticket) == nil && bench.service.requests.isEmpty)
    #expect(bench.answer(ticket, within: 3) == .opened(directIO: false))
    #expect(resolver.asks.count == 1)
  }

  @Test(
    "A link that begins later fails its readers at once, and the resolver is asked again then",
    arguments: [("1090", "good only from Thu, 01 Jan 1970 00:18:10 GMT on", 90.0), ("9e18", "more than a day", 600)])
  func beginsLate(_ begin: String, _ words: String, _ pause: Double) throws {
    let resolver = FakeResolver { "\"url\":\"http://cdn/0\"" + ($1 == 0 ? ",\"not_before\":\(begin)" : "") }
    let bench = try bench(resolver)
    let inode = try bench.inode("a.mp4")
    for _ in 0..<8 {
      #expect(bench.answer(bench.open(inode), within: 1) == .error(.io))
      bench.run(pause / 10, step: 0.1)
    }
    #expect(resolver.asks.count == 1 && bench.service.requests.isEmpty)
    let message = try bench.system.reports.report(on: bench.node("a.mp4")).error ?? ""
    #expect(message.contains(words), "\(message)")
    bench.run(pause * 0.25, step: 0.1)
    #expect(bench.answer(bench.open(inode), within: 1) == .opened(directIO: false))
    #expect(resolver.asks.count == 2)
  }

  @Test("While a program that keeps ending rests, readers get the error at once, those of other entries too")
  func rests() throws {
    let resolver = FakeResolver { _, _ in nil }
    var others = (1...2).map { Bench.entry("\($0).mp4", UInt64($0), urls: ["http://page/\($0)"]) }
    for index in others.indices { others[index].resolver = "r" }
    let bench = try Bench(others, [:])
    resolver.serve(bench.system)
    let ticket = bench.open(try bench.inode("1.mp4"))
    for _ in 0..<3 {
      let former = resolver.asks.count
      #expect(bench.run(until: 5) { resolver.asks.count > former })
      bench.system.heard(.ended("r", "it has ended"))
    }
    #expect(bench.answer(ticket, within: 1) == .error(.io))
    #expect(bench.answer(bench.open(try bench.inode("2.mp4")), within: 1) == .error(.io))
    let message = try bench.system.reports.report(on: bench.node("2.mp4")).error ?? ""
    #expect(message.hasSuffix("it has ended"), "\(message)")
    #expect(resolver.asks.count == 3)
    // After its rest it is asked for either.
    bench.run(5)
    let other = bench.open(try bench.inode("2.mp4"))
    #expect(bench.run(until: 2) { resolver.asks.count == 4 })
    #expect(bench.port.reply(to: other) == nil)
  }

  @Test("What a program had written before it was ended does not end the next one")
  func lateLines() throws {
    let resolver = FakeResolver { ask, number in number == 0 ? nil : Self.numbered(ask, 0) }
    let bench = try bench(resolver)
    let ticket = bench.open(try bench.inode("a.mp4"))
    #expect(bench.run(until: 5) { resolver.asks.count == 1 })
    let line = "{\"key\":\"\(resolver.asks[0].key.hex)\",\"url\":\"http://cdn/1\"}"
    let late = try #require(ResolverAnswer(line: line.utf8))
    for news: ResolverNews in [
      .ended("r", "it says what is no answer"), .ended("r", "it says what is no answer"), .answered("r", late),
      .ended("r", "it says what nobody asked"),
    ] { bench.system.heard(news) }
    #expect(bench.answer(ticket, within: 2) == .opened(directIO: false))
    #expect(resolver.asks.count == 2 && resolver.ends == 0)
  }

  @Test("A link that nobody used before it ended costs the next reader nothing but another ask")
  func unused() throws {
    let ends = [1007, 1014, 1100, 1200]
    let resolver = FakeResolver { "\"url\":\"http://cdn/\($1)\",\"expires\":\(ends[min($1, 3)])" }
    let bench = try bench(resolver)
    let inode = try bench.inode("a.mp4")
    #expect(bench.answer(bench.open(inode), within: 2) == .opened(directIO: false))
    // The next link is given while the first one serves, and ends while nobody reads.
    bench.run(6, step: 0.1)
    bench.expectBytes(inode, 2 * Self.megabyte, 4096, of: "a.mp4")
    #expect(resolver.asks.count == 2, "\(resolver.asks.count)")
    bench.run(14, step: 0.1)
    bench.expectBytes(inode, 6 * Self.megabyte, 4096, of: "a.mp4", within: 3)
  }

  @Test("Once the launcher has ended, readers get the error soon")
  func withoutLauncher() throws {
    let resolver = FakeResolver { _, _ in nil }
    let bench = try bench(resolver)
    let ticket = bench.open(try bench.inode("a.mp4"))
    #expect(bench.run(until: 5) { resolver.asks.count == 1 })
    bench.system.heard(.gone("the launcher has ended"))
    resolver.isGone = true
    #expect(bench.answer(ticket, within: 8) == .error(.io))
  }

  @Test("Links that bring nothing fail their readers at once; a run comes 30, 60 and 120 s after the one before")
  func uselessLinks() throws {
    let resolver = FakeResolver(Self.numbered)
    let bench = try bench(resolver, links: 100) { _, resource in resource.failure = Self.denied }
    let inode = try bench.inode("a.mp4")
    for _ in 0..<80 {
      #expect(bench.answer(bench.open(inode), within: 1) == .error(.io))
      bench.run(3, step: 0.1)
    }
    #expect(resolver.reasons == ["first", "403", "403", "403"])
    let message = try bench.system.reports.report(on: bench.node("a.mp4")).error ?? ""
    #expect(message.hasPrefix("the resolver r gives no link: its last one brought nothing: "), "\(message)")
    #expect(message.hasSuffix("refused (HTTP 403)"), "\(message)")
  }

  @Test("After links that bring nothing, the first that brings bytes ends the pauses")
  func usefulAgain() throws {
    let resolver = FakeResolver(Self.numbered)
    let bench = try bench(resolver, links: 100) { number, resource in
      if number < 2 { resource.failure = Self.denied }
    }
    wearOut(bench, after: 6)
    let inode = try bench.inode("a.mp4")
    for _ in 0..<2 {
      #expect(bench.answer(bench.open(inode), within: 1) == .error(.io))
      bench.run(70, step: 0.1)
    }
    guard case .opened? = bench.answer(bench.open(inode), within: 1) else {
      Issue.record("not opened")
      return
    }
    for offset in stride(from: 0, to: Self.size, by: 128 << 10) {
      bench.expectBytes(inode, offset, 128 << 10, of: "a.mp4", within: 1.5)
    }
    #expect(resolver.asks.count > 4)
  }

  @Test("A resolver without a link fails its readers at once, and is not asked again for a while")
  func refuses() throws {
    let resolver = FakeResolver { _, _ in "\"error\":\"it is private\"" }
    let bench = try bench(resolver)
    let inode = try bench.inode("a.mp4")
    for _ in 0..<20 {
      #expect(bench.answer(bench.open(inode), within: 2) == .error(.io))
      bench.run(1, step: 0.1)
    }
    #expect(resolver.asks.count == 1)
    bench.run(40, step: 0.1)
    _ = bench.answer(bench.open(inode), within: 2)
    #expect(resolver.asks.count == 2)
    #expect(try bench.system.reports.report(on: bench.node("a.mp4")).error?.contains("it is private") == true)
  }

  @Test("A resolver that hangs is ended after a minute; the reader's stall ends as any other")
  func hangs() throws {
    let resolver = FakeResolver { _, _ in nil }
    let bench = try bench(resolver)
    let ticket = bench.open(try bench.inode("a.mp4"))
    #expect(bench.answer(ticket, within: 40, step: 0.1) == .error(.timedOut))
    #expect(resolver.ends == 0)
    bench.run(40, step: 0.1)
    #expect(resolver.ends == 1 && resolver.asks.count == 1)
  }

  @Test("A resolver that ends is asked again, and no reader notices more than a pause")
  func dies() throws {
    let resolver = FakeResolver { $1 == 0 ? nil : Self.numbered($0, 0) }
    let bench = try bench(resolver)
    let ticket = bench.open(try bench.inode("a.mp4"))
    bench.run(0.5)
    bench.system.heard(.ended("r", "it has ended"))
    guard case .opened? = bench.answer(ticket, within: 5) else {
      Issue.record("not opened")
      return
    }
    #expect(resolver.asks.count == 2)
  }

  @Test("An answer for a file that was not asked for ends the resolver, and changes no file's link")
  func answersForAnother() throws {
    let resolver = FakeResolver { _, _ in nil }
    let bench = try bench(resolver)
    let ticket = bench.open(try bench.inode("a.mp4"))
    bench.run(0.5)
    let line = "{\"key\":\"\(ResourceKey(high: 7, low: 7).hex)\",\"url\":\"http://cdn/0\"}"
    bench.system.heard(.answered("r", try #require(ResolverAnswer(line: line.utf8))))
    bench.run(0.5)
    #expect(resolver.ends == 1 && bench.service.requests.isEmpty && bench.port.reply(to: ticket) == nil)
    bench.run(2)
    #expect(resolver.asks.count == 2)
  }

  @Test("Links outlive their file in memory; the server's end forgets them, and stored bytes need a proof again")
  func restarts() throws {
    let resolver = FakeResolver(Self.numbered)
    var options = ReadingOptions.testing
    options.continuation = .never
    let bench = try bench(resolver, options: options)
    var inode = try bench.opened("a.mp4")
    bench.expectBytes(inode, 0, 256 << 10, of: "a.mp4")
    bench.system.release(inode)
    #expect(bench.run(until: 90, step: 0.1) { !bench.isInMemory(inode) })
    inode = try bench.opened("a.mp4")
    bench.expectBytes(inode, 4 * Self.megabyte, 4096, of: "a.mp4")
    #expect(resolver.asks.count == 1 && bench.service.requests.last?.ifRange != nil)
    try bench.restart()
    resolver.serve(bench.system)
    inode = try bench.opened("a.mp4")
    bench.expectBytes(inode, 6 * Self.megabyte, 4096, of: "a.mp4")
    #expect(resolver.reasons == ["first", "first"] && resolver.asks.last?.size == Self.size)
  }

  @Test("A name that no option defines fails, and the entry's own URL is not requested")
  func undefined() throws {
    let resolver = FakeResolver { _, _ in nil }
    var entry = Bench.entry("b.mp4", 2)
    entry.resolver = "other"
    // Also beside one that is defined: an ask for another one would end the launcher.
    for isServed in [false, true] {
      let bench = try Bench([entry], [entry.urls[0]: FakeResource(name: "b.mp4", size: 1000)])
      if isServed { resolver.serve(bench.system) }
      #expect(bench.answer(bench.open(try bench.inode("b.mp4"))) == .error(.io))
      #expect(bench.service.requests.isEmpty && resolver.asks.isEmpty)
    }
  }
}
