import Base
import Manifest
import Reading
import TestSupport
import Testing

@testable import Storing

/// The digests that resolvers tell of.
extension RenewalScenarios {
  /// The digest of the file's first version.
  private func right(of size: Int64 = Self.size) throws -> String {
    var digester = try Digester(.sha256)
    Pattern.bytes(name: "a.mp4", offset: 0, count: Int(size)).withUnsafeBytes { digester.update($0) }
    return hexadecimal(digester.finish())
  }

  private static let wrong = String(repeating: "0", count: 64)

  private func expectEnd(_ bench: Bench, isComplete: Bool, _ location: SourceLocation = #_sourceLocation) throws {
    #expect(bench.run(until: 60) { bench.isComplete("a.mp4") || (try? bench.state("a.mp4")) == .failed })
    #expect(bench.isComplete("a.mp4") == isComplete, sourceLocation: location)
    let message = try bench.system.reports.report(on: bench.node("a.mp4")).error ?? ""
    #expect(message.contains("its resolver tells of") != isComplete, "\(message)", sourceLocation: location)
  }

  @Test("The whole file is compared with the digest that the resolver tells of, unless the list has its own")
  func digest() throws {
    for (digest, isRight) in [(try right(), true), (Self.wrong, false)] {
      let resolver = FakeResolver { "\"url\":\"http://cdn/\($1)\",\"digest\":\"sha-256=\(digest)\"" }
      let bench = try bench(resolver)
      readAll(bench, try bench.opened("a.mp4"))
      try expectEnd(bench, isComplete: isRight)
    }
  }

  @Test("A link by which no answer came says nothing of the file: the digest of the one before counts")
  func digestOfAnUnusedLink() throws {
    let size: Int64 = 288 << 10
    for (digests, isRight) in [([try right(of: size), Self.wrong], true), ([Self.wrong, try right(of: size)], false)] {
      let resolver = FakeResolver { _, number in
        "\"url\":\"http://cdn/\(number)\",\"digest\":\"sha-256=\(digests[min(number, 1)])\","
          + "\"expires\":\(number == 0 ? 1100 : 9000)"
      }
      var options = ReadingOptions.testing
      options.continuation = .never
      let bench = try bench(resolver, options: options) { $1.size = size }
      let inode = try bench.opened("a.mp4")
      bench.run(85, step: 0.1)
      // The request for the rest goes over the first link, and the resolver is asked meanwhile.
      bench.expectBytes(inode, 0, Int(size), of: "a.mp4")
      #expect(resolver.reasons == ["first", "soon"] && bench.service.requests.allSatisfy { $0.url == "http://cdn/0" })
      try expectEnd(bench, isComplete: true)
      // What is refused comes once more, over the second link.
      #expect(bench.service.sent == (isRight ? size : 2 * size))
    }
  }

  @Test("What is refused after its link was compared with what was stored comes once more, and then has failed")
  func digestAfterASeam() throws {
    let resolver = FakeResolver { "\"url\":\"http://cdn/\($1)\",\"digest\":\"sha-256=\(Self.wrong)\"" }
    let bench = try bench(resolver, links: 100) { _, resource in (resource.etag, resource.lastModified) = (nil, nil) }
    bench.service.answer = { request, resource in
      var resource = resource
      if request.url.hasSuffix("/0"), (request.range?.start ?? 0) >= Self.megabyte { resource.failure = Self.denied }
      return resource
    }
    readAll(bench, try bench.opened("a.mp4"))
    try expectEnd(bench, isComplete: false)
    let asked = bench.service.requests.count
    bench.run(60)
    #expect(asked < 400 && bench.service.requests.count == asked, "\(asked), then \(bench.service.requests.count)")
    #expect(bench.service.sent <= 2 * Self.size + 5 * Self.megabyte)
  }

  @Test("A server that has begun anew knows only the digests that its own links tell of")
  func digestsOverARestart() throws {
    for (digest, isRight) in [("", true), (",\"digest\":\"sha-256=\(Self.wrong)\"", false)] {
      let resolver = FakeResolver { _, number in
        "\"url\":\"http://cdn/\(number)\"" + (number == 0 ? ",\"digest\":\"sha-256=\(Self.wrong)\"" : digest)
      }
      var options = ReadingOptions.testing
      options.continuation = .never
      let bench = try bench(resolver, options: options)
      bench.expectBytes(try bench.opened("a.mp4"), 0, 128 << 10, of: "a.mp4")
      try bench.restart()
      resolver.serve(bench.system)
      readAll(bench, try bench.opened("a.mp4"))
      try expectEnd(bench, isComplete: isRight)
    }
  }
}
