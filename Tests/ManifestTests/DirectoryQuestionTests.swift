import Manifest
import Testing

/// Which request finds out what a folder has.
@Suite("Questions to directories")
struct DirectoryQuestionTests {
  typealias Event = DirectoryQuestion.Event
  typealias Action = DirectoryQuestion.Action

  struct Course: CustomTestStringConvertible, Sendable {
    var testDescription: String
    var first = DirectoryQuestion.Request.get
    var steps: [(Event, Action)]
  }

  private static func answer(_ status: Int, dav: Bool = false) -> Event {
    .answered(.init(status: status, speaksDAV: dav))
  }
  private static let page = DirectoryFault.notAListing(reason: "it is a page")

  static let courses = [
    Course(testDescription: "a listing", steps: [(answer(200), .read), (.listed, .finished)]),
    Course(testDescription: "a multistatus to GET", steps: [(answer(207), .read), (.listed, .finished)]),
    Course(
      testDescription: "a server that says DAV",
      steps: [(answer(200, dav: true), .ask(.propfind)), (answer(207), .read), (.listed, .finished)]),
    Course(
      testDescription: "one that says DAV and refuses PROPFIND",
      steps: [(answer(200, dav: true), .ask(.propfind)), (answer(405), .ask(.get)), (answer(200, dav: true), .read)]),
    Course(
      testDescription: "one that says DAV, breaks at PROPFIND, and has a page",
      steps: [
        (answer(200, dav: true), .ask(.propfind)), (answer(500), .ask(.get)), (answer(200, dav: true), .read),
        (.unreadable(page), .failed(.unreadable(page))),
      ]),
    Course(
      testDescription: "no GET of folders",
      steps: [(answer(405), .ask(.propfind)), (answer(207), .read), (.listed, .finished)]),
    Course(
      testDescription: "no listing, silent about DAV",
      steps: [(answer(403), .ask(.propfind)), (answer(405), .failed(.refused(status: 403)))]),
    Course(
      testDescription: "an index.html in a folder of WebDAV",
      steps: [
        (answer(200), .read), (.unreadable(page), .ask(.propfind)), (answer(207), .read), (.listed, .finished),
      ]),
    Course(
      testDescription: "an index.html elsewhere",
      steps: [
        (answer(200), .read), (.unreadable(page), .ask(.propfind)), (answer(405), .failed(.unreadable(page))),
      ]),
    Course(
      testDescription: "PROPFIND taken for GET",
      steps: [
        (answer(200), .read), (.unreadable(page), .ask(.propfind)), (answer(200), .read),
        (.unreadable(.cut), .failed(.unreadable(.cut))),
      ]),
    Course(
      testDescription: "a listing that is cut",
      steps: [(answer(200), .read), (.unreadable(.cut), .failed(.unreadable(.cut)))]),
    Course(testDescription: "a password", steps: [(answer(401), .failed(.denied))]),
    Course(testDescription: "nothing there", steps: [(answer(404), .failed(.gone))]),
    Course(
      testDescription: "nothing for GET, in WebDAV",
      steps: [(answer(404, dav: true), .ask(.propfind)), (answer(404), .failed(.gone))]),
    Course(testDescription: "busy", steps: [(answer(503), .failed(.later(status: 503)))]),
    Course(testDescription: "too often", steps: [(answer(429), .failed(.later(status: 429)))]),
    Course(
      testDescription: "a server known for WebDAV", first: .propfind,
      steps: [(answer(207), .read), (.listed, .finished)]),
    Course(
      testDescription: "one that was known for WebDAV", first: .propfind,
      steps: [(answer(401), .ask(.get)), (answer(200, dav: true), .read), (.listed, .finished)]),
    Course(
      testDescription: "a redirect that was not followed",
      steps: [(answer(301), .ask(.propfind)), (answer(301), .failed(.refused(status: 301)))]),
  ]

  @Test(arguments: courses) func whatComesNext(_ course: Course) {
    var question = DirectoryQuestion(course.first)
    for (event, action) in course.steps {
      #expect(question.take(event) == action)
      if case .ask(let request) = action { #expect(question.request == request) }
    }
  }

  /// Whatever a server answers, three requests are the most.
  @Test func everyCourseEnds() {
    let events: [Event] =
      [200, 204, 207, 301, 401, 403, 404, 405, 416, 429, 500, 501, 503].flatMap {
        [Self.answer($0), Self.answer($0, dav: true)]
      } + [.listed, .unreadable(Self.page), .unreadable(.cut), .unreadable(.file(mediaType: "a/b"))]
    func longest(_ question: DirectoryQuestion, _ isBody: Bool, _ requests: Int) -> Int {
      if requests > 3 { return requests }
      return events.filter { if case .answered = $0 { !isBody } else { isBody } }.map { event in
        var next = question
        return switch next.take(event) {
        case .ask: longest(next, false, requests + 1)
        case .read: longest(next, true, requests)
        case .finished, .failed: requests
        }
      }.max() ?? 0
    }
    #expect(longest(DirectoryQuestion(), false, 1) == 3 && longest(DirectoryQuestion(.propfind), false, 1) == 2)
  }

  @Test func whatIsSent() {
    #expect(DirectoryQuestion.Request.get.method == "GET" && DirectoryQuestion.Request.get.body == nil)
    let propfind = DirectoryQuestion.Request.propfind
    #expect(propfind.method == "PROPFIND" && propfind.headers.contains { $0 == ("Depth", "1") })
    #expect(propfind.body?.contains("<getcontentlength/>") ?? false)
  }
}
