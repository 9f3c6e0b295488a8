/// Decides which request finds out what a folder of a server has: a page by GET, or WebDAV's PROPFIND, which tells
/// every size. Pure: what came goes in, what to do comes out, and after three requests it ends.
///
/// A server of WebDAV does not always say so to a GET (Apache says it to OPTIONS alone), and one with listings may
/// refuse them for a folder with an index.html: so what one request cannot tell, the other may.
package struct DirectoryQuestion: Sendable, Equatable {
  package enum Request: Sendable, Equatable {
    case get, propfind

    package var method: String { self == .get ? "GET" : "PROPFIND" }
    /// The header fields that belong to it. JSON would be shorter than Caddy's page; other servers do not look.
    package var headers: [(name: String, value: String)] {
      switch self {
      case .get: [("Accept", "application/json, text/html;q=0.9, */*;q=0.8")]
      case .propfind: [("Depth", "1"), ("Content-Type", "application/xml; charset=utf-8")]
      }
    }
    package var body: String? {
      if self == .get { return nil }
      let properties = "<resourcetype/><getcontentlength/><getlastmodified/>"
      return "<?xml version=\"1.0\" encoding=\"utf-8\"?><propfind xmlns=\"DAV:\"><prop>\(properties)</prop></propfind>"
    }
  }

  /// The head of an answer, after redirects.
  package struct Answer: Sendable, Equatable {
    package var status: Int
    /// Whether it has a header field `DAV`, or an `Allow` with PROPFIND.
    package var speaksDAV: Bool

    package init(status: Int, speaksDAV: Bool = false) {
      self.status = status
      self.speaksDAV = speaksDAV
    }
  }

  package enum Event: Sendable, Equatable {
    case answered(Answer)
    /// ``DirectoryReader`` read the body to its end.
    case listed
    /// ``DirectoryReader`` could not read it.
    case unreadable(DirectoryFault)
  }

  package enum Action: Sendable, Equatable {
    /// Send that request for the folder's URL, whatever comes of the one before.
    case ask(Request)
    /// Hand the body to a ``DirectoryReader``, then say what came of it.
    case read
    /// The listing is whole; ``request`` is the one to begin with for the folders in it.
    case finished
    case failed(Failure)
  }

  package enum Failure: Error, Sendable, Equatable {
    /// The server wants a password, or another one.
    case denied
    /// There is no such folder.
    case gone
    /// The server cannot answer now; the same question may be answered later.
    case later(status: Int)
    /// The server refuses to list it.
    case refused(status: Int)
    case unreadable(DirectoryFault)
  }

  /// The request that was sent last.
  package private(set) var request: Request
  /// Whether there is no more to hope for from the other request.
  private var isOtherSpent = false
  /// What the first request showed, if it was not a listing.
  private var first: Failure?

  /// Begins with `request`, which the caller sends: GET, or what a folder of the same server was listed by.
  package init(_ request: Request = .get) { self.request = request }

  package mutating func take(_ event: Event) -> Action {
    switch event {
    case .listed: .finished
    case .unreadable(let fault):
      switch fault {
      case .file, .notAListing: other(.unreadable(fault))
      case .badURL, .cut, .malformed, .tooMany: .failed(.unreadable(fault))
      }
    case .answered(let answer): judge(answer)
    }
  }

  private mutating func judge(_ answer: Answer) -> Action {
    switch answer.status {
    case 207: return .read
    case 200..<300:
      // The page stays to be asked for again, if PROPFIND is refused all the same.
      guard request == .get, answer.speaksDAV, !isOtherSpent else { return .read }
      request = .propfind
      return .ask(.propfind)
    default: break
    }
    let failure: Failure =
      switch answer.status {
      case 401, 407: .denied
      case 404, 410: .gone
      case 408, 425, 429, 500, 502...599: .later(status: answer.status)
      default: .refused(status: answer.status)
      }
    // A server may list by GET what it keeps, or breaks, for PROPFIND: Apache without a DAVLockDB answers 500.
    if request == .propfind || answer.speaksDAV { return other(failure) }
    if case .refused = failure { return other(failure) }
    return .failed(failure)
  }

  /// Asks by the other request, if that is not spent. What a body showed says more than a refusal.
  private mutating func other(_ failure: Failure) -> Action {
    if isOtherSpent {
      if case .unreadable = first { return .failed(first ?? failure) }
      if case .unreadable = failure { return .failed(failure) }
      return .failed(first ?? failure)
    }
    isOtherSpent = true
    first = failure
    request = request == .get ? .propfind : .get
    return .ask(request)
  }
}
