import Base
import Manifest
import Testing

@testable import Reading

/// When a link is requested by, and when its resolver is asked for another: one link, with ends of its parts.
@Suite struct RenewalTables {
  /// When the link is given, in seconds since 1970.
  private static let given: Int64 = 1_767_225_600
  private static let now = Instant(nanoseconds: 1_000_000_000_000)

  /// The step so many seconds after `link` was given.
  private func step(_ link: ResolvedLink, after seconds: Int64) -> Renewal.Step {
    var renewal = Renewal()
    renewal.asked(Self.now)
    renewal.answered(link, Self.now, date: Self.given)
    renewal.used()
    renewal.brought()
    return renewal.step(Self.now.adding(seconds: Double(seconds)), date: Self.given + seconds)
  }

  @Test("The first URL to end is the time for another link; the others are requested on")
  func mirrorsThatEnd() {
    var link = ResolvedLink(urls: ["http://a/?expire=\(Self.given + 1000)", "http://b/?expire=\(Self.given + 500)"])
    link.end = Self.given + 1000
    #expect(step(link, after: 430) == .request)
    #expect(step(link, after: 440) == .requestAndAsk(.soon))
    #expect(step(link, after: 600) == .requestAndAsk(.soon))
    #expect(step(link, after: 1000) == .ask(.soon))
  }

  @Test("A mirror that had ended before the answer came counts for nothing")
  func mirrorsThatHaveEnded() {
    let link = ResolvedLink(urls: ["http://a/", "http://b/?expire=\(Self.given - 1)"])
    for seconds: Int64 in [2, 10_000] { #expect(step(link, after: seconds) == .request) }
  }

  @Test("A token in a header field is renewed before it ends, and holds no request back")
  func tokensInFields() {
    // `printf '{"exp":1767226100}' | basenc --base64url`, 500 s later.
    let token = "eyJhbGciOiJub25lIn0.eyJleHAiOjE3NjcyMjYxMDB9.c2ln"
    for field in [("Cookie", "a=1; session=\(token)"), ("Authorization", "Bearer \(token)")] {
      var link = ResolvedLink(urls: ["http://a/"])
      link.headers = [HTTPHeader(name: field.0, value: field.1)]
      #expect(step(link, after: 430) == .request)
      #expect(step(link, after: 440) == .requestAndAsk(.soon))
      #expect(step(link, after: 10_000) == .requestAndAsk(.soon))
    }
  }
}
