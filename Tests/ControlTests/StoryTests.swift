import Base
import Glibc
import Testing

@testable import Control

/// What else is told of a file, and of its mount.
@Suite struct StoryTests {
  private static var story: FileStory {
    var story = FileStory(line: 7)
    story.origins = [
      .init(host: "https://a", asked: true, refusal: nil), .init(host: "http://b", asked: false, refusal: "\""),
    ]
    (story.type, story.etag, story.lastModified, story.servesRanges) = ("video/mp4", "W/\"1\"", 5, true)
    var fetched = FileStory.Fetched()
    (fetched.reader, fetched.scan, fetched.continuation) = (1, 2, 3)
    fetched.sources = [.init(host: "https://a", bytes: 6)]
    story.fetched = fetched
    story.errors = [.init(message: "gone", age: 4)]
    (story.partial, story.goesOn, story.leases) = ("/s/partial/1", .fetch, [[0, 2]])
    return story
  }

  @Test func aStoryIsToldAsItIs() throws {
    var file = FileStatus(path: "a", state: .partial, stored: 1, size: 2)
    file.story = Self.story
    let server = try RunningServer([file])
    var query = StatusQuery(paths: ["a"])
    query.story = true
    #expect(try server.connect().page(query).files == [file])
    #expect(server.handler.state.withLock { $0.queries.last?.story } == true)
    var bytes: [UInt8] = []
    file.appendJSON(to: &bytes)
    #expect(try decodeLine(FileStatus.self, bytes) == file)
    // The same keys in the same order; null where nothing is known.
    func keys(_ bytes: [UInt8]) -> [Substring] {
      String(decoding: bytes, as: UTF8.self).matches(of: #/"([a-zA-Z]+)":/#).map(\.1)
    }
    #expect(keys(bytes) == keys(try encodeLine(file)))
    let empty = String(decoding: try encodeLine(FileStory(line: 1)), as: UTF8.self)
    #expect(keys(Array(empty.utf8)).count == 13 && empty.contains("\"copy\":null"), "\(empty)")
  }

  /// Root asks servers of other users.
  @Test func aStoryWithoutEndIsRefused() throws {
    for fill: (inout FileStory) -> Void in [
      { $0.origins = Array(repeating: .init(host: "a", asked: false, refusal: nil), count: ControlLimits.origins + 1) },
      { $0.leases = Array(repeating: [0, 1], count: ControlLimits.origins + 1) },
      { $0.leases = [[1]] },
      { $0.errors = Array(repeating: .init(message: "a", age: 1), count: ControlLimits.errors + 1) },
      { story in
        story.fetched = .init()
        story.fetched?.sources = Array(repeating: .init(host: "a", bytes: 1), count: ControlLimits.origins + 1)
      },
    ] {
      var file = FileStatus(path: "a")
      var story = FileStory(line: 1)
      fill(&story)
      file.story = story
      let server = try RunningServer([file])
      #expect(throws: ControlFailure.self) { _ = try server.connect().page(StatusQuery(paths: ["a"])) }
    }
  }
}
