import Base
import Fetching
import TestSupport
import Testing

import Reading

/// Redirects that lead to the wrong place: what is remembered of them, and where the second opinion comes from.
@Suite struct RedirectScenarios {
  static let megabyte: Int64 = 1 << 20
  static let url = "http://origin/a.mp4"
  static let there = "http://there/a.mp4"
  static let elsewhere = "http://elsewhere/a.mp4"

  /// A file to which its entry's URL redirects, and which another host has too.
  private func bench() throws -> Bench {
    var options = ReadingOptions.testing
    options.continuation = .never
    let good = FakeResource(name: "a.mp4", size: 50 * Self.megabyte)
    var redirect = good
    redirect.redirect = Self.there
    return try Bench(
      [Bench.entry("a.mp4", 1)], [Self.url: redirect, Self.there: good, Self.elsewhere: good], options: options)
  }

  private var page: FakeResource {
    var page = FakeResource(name: "login", size: 5000)
    (page.etag, page.lastModified, page.mediaType, page.ignoresRanges) = (nil, nil, "text/html", true)
    return page
  }

  @Test("A redirect to a login page is not remembered: once the user has logged in, the entry's own URL leads on")
  func loginPage() throws {
    let bench = try bench()
    let former = bench.service.resources
    for url in [Self.url, Self.there] { bench.service.resources[url] = page }
    bench.service.resources[Self.url]?.redirect = Self.there
    let ticket = bench.open(try bench.inode("a.mp4"))
    bench.run(5)
    #expect(bench.port.reply(to: ticket) == nil)
    bench.service.resources[Self.url] = former[Self.url]
    bench.service.resources[Self.url]?.redirect = Self.elsewhere
    #expect(bench.answer(ticket, within: 5) == .opened(directIO: false))
    bench.expectBytes(try bench.inode("a.mp4"), 30 * Self.megabyte, 4096, of: "a.mp4", within: 2)
  }

  @Test("A remembered target that sends a page or a useless answer is forgotten", arguments: [true, false])
  func targetThatFails(isPage: Bool) throws {
    let bench = try bench()
    let inode = try bench.opened("a.mp4")
    bench.expectBytes(inode, 10 * Self.megabyte, 4096, of: "a.mp4")
    #expect(bench.service.requests.last?.url == Self.there)
    if isPage {
      bench.service.resources[Self.there] = page
    } else {
      bench.service.resources[Self.there]?.failure = FakeResource.odd
    }
    bench.service.resources[Self.url]?.redirect = Self.elsewhere
    bench.expectBytes(inode, 30 * Self.megabyte, 4096, of: "a.mp4", within: 5)
    #expect(try bench.inode("a.mp4") == inode)
  }

  @Test("Whether a file changed is asked of the entry's own URL: what one target alone says is no other version")
  func secondOpinion() throws {
    let bench = try bench()
    let inode = try bench.opened("a.mp4")
    bench.expectBytes(inode, 10 * Self.megabyte, 4096, of: "a.mp4")
    bench.service.resources[Self.there]?.change()
    bench.service.resources[Self.url]?.redirect = Self.elsewhere
    bench.expectBytes(inode, 30 * Self.megabyte, 4096, of: "a.mp4", within: 5)
    #expect(try bench.inode("a.mp4") == inode)
    // The entry's own URL has it too: then it is.
    for url in [Self.url, Self.elsewhere] { bench.service.resources[url]?.change() }
    #expect(bench.answer(bench.read(inode, 45 * Self.megabyte, 4096)) == .error(.stale))
  }

  @Test("A redirect that leads to another host each time, with tags of its own, keeps no reader from its bytes")
  func anotherHostEachTime() throws {
    let bench = try bench()
    let inode = try bench.opened("a.mp4")
    bench.expectBytes(inode, 10 * Self.megabyte, 4096, of: "a.mp4")
    bench.service.resources[Self.there]?.failure = FakeResource.gone
    var hosts = 0
    bench.service.answer = { request, resource in
      var resource = resource
      if request.url == Self.url {
        hosts += 1
        resource.redirect = "http://host\(hosts)/a.mp4"
        resource.etag = "\"host \(hosts)\""
        bench.service.resources["http://host\(hosts)/a.mp4"] = FakeResource(
          name: "a.mp4", size: resource.size, etag: resource.etag)
      }
      return resource
    }
    // They are other versions, as nothing tells that they are not.
    #expect(bench.answer(bench.read(inode, 30 * Self.megabyte, 4096)) == .error(.stale))
    bench.expectBytes(try bench.opened("a.mp4"), 30 * Self.megabyte, 4096, of: "a.mp4", within: 5)
  }
}
