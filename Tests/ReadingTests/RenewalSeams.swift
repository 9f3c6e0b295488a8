import Base
import Fetching
import Reading
import TestSupport
import Testing

/// What the answers by a new link have to prove, where the hosts behind it have tags of their own.
extension RenewalScenarios {
  /// A room in which the first half of a MiB came by a link that is refused from the fifth on. `answer`: what the next
  /// link gives.
  private func benchOfHosts(_ answer: @escaping (TransferRequest, FakeResource) -> FakeResource) throws -> Bench {
    let resolver = FakeResolver { "\"url\":\"http://cdn/\($1)\"" }
    var options = ReadingOptions.testing
    options.continuation = .never
    let bench = try bench(resolver, options: options)
    bench.service.answer = { request, resource in
      guard request.url.hasSuffix("/0") else { return answer(request, resource) }
      var resource = resource
      if (request.range?.start ?? 0) >= 4 * Self.megabyte { resource.failure = Self.denied }
      return resource
    }
    bench.expectBytes(try bench.opened("a.mp4"), 0, 512 << 10, of: "a.mp4")
    return bench
  }

  @Test("All windows must come under one tag: what one host behind a link proves says nothing of another's bytes")
  func hostsOfALink() throws {
    var isOther = false
    let bench = try benchOfHosts { request, resource in
      var resource = resource
      let start = request.range?.start ?? 0
      // From the first window on another host answers, which has the stored bytes there alone.
      if start == 0 { isOther = true }
      resource.etag = isOther ? "\"b\"" : "\"a\""
      if isOther, start > 0 { resource.version = 2 }
      return resource
    }
    #expect(bench.answer(bench.read(try bench.inode("a.mp4"), 6 * Self.megabyte, 4096)) == .error(.stale))
  }

  @Test("A link with another tag in each answer costs a few windows, and then counts as another version")
  func tagsThatChange() throws {
    var answers = 0
    let bench = try benchOfHosts { _, resource in
      var resource = resource
      answers += 1
      resource.etag = "\"of answer \(answers)\""
      return resource
    }
    let before = bench.service.sent
    #expect(bench.answer(bench.read(try bench.inode("a.mp4"), 6 * Self.megabyte, 4096)) == .error(.timedOut))
    #expect(bench.service.sent - before < 2 * Self.megabyte)
  }
}
