import Manifest
import Testing

/// What people write into a list of URLs that mediafs can fetch and that is hardly what they meant.
@Suite("Mistakes in a list of URLs")
struct MistakeTests {
  @Test(arguments: [
    ("https://h/a.mp4 out=geheim.mp4", "out= after the URL"), ("https://h/a b.mp4  dir=geheim", "dir= after the URL"),
    ("https://h/a.mp4 https://h/geheim.mp4", "two URLs"), ("https://h/a.mp4,geheim,12", "table"),
    ("https://h/a?geheim,\"A title\"", "table"), ("https://h/a,https://h/geheim", "table"),
    ("https://h/a.mp4|Cookie=geheim&X=1", "behind a bar"), ("https://h/a.mp4|Cookie: geheim", "behind a bar"),
    ("https://h/a.mp4 geheim.mp4", "behind the URL and a blank"),
    ("https://h/a.mp4 | geheim.mp4", "behind the URL and a blank"), ("https://h/a.mp4;geheim", "semicolons"),
    ("https://h/a?geheim;\"A title\"", "semicolons"),
    ("https://h/a;https://h/geheim", "semicolons"), ("https://h/a.mp4;geheim film, part one", "semicolons"),
    ("https://www.youtube.com/watch?v=geheim", "page"), ("https://youtu.be/geheim", "page"),
    ("https://vimeo.com/1?geheim", "page"),
  ]) func isWarnedOf(line: String, words: String) throws {
    let reading = try read("# first\n\(line)\nhttps://h/next.mp4\n")
    #expect(reading.entries.count == 2, "the line is used all the same")
    #expect(reading.problems.map(\.line) == [2] && reading.errors.isEmpty)
    let message = try #require(reading.problems.first).message
    #expect(message.contains(words) && !message.contains("geheim"), "\(message)")
  }

  @Test(arguments: [
    "Title,https://h/geheim.mp4", "\"https://h/geheim.mp4\",\"Title\"", "1, https://h/geheim.mp4",
    "Title;https://h/geheim.mp4",
  ])
  func aRowOfATableIsNoURL(line: String) throws {
    let reading = try read("https://h/a.mp4\n\(line)\n")
    #expect(reading.errors.map(\.line) == [2] && reading.entries.count == 1)
    let message = try #require(reading.errors.first).message
    #expect(message.contains("table with ") && !message.contains("geheim"), "\(message)")
  }

  @Test(arguments: [
    "https://h/a b.mp4", "https://h/a,b.mp4", "https://h/a?x=1,2&y=out=3", "https://h/a, b c.mp4",
    "https://youtube.com/", "https://player.vimeo.com/x.mp4", "https://notyoutube.com/watch?v=1",
    "https://h/a.mp4\thttps://h/b.mp4", "https://h/a;b.mp4", "https://h/a.mp4;jsessionid=1A2B",
    "https://h/a.mp4;v=1;t=2?x=1;y=2", "https://h/a?f=a.mp4;x=1",
    "https://h/a|b.mp4", "https://h/a?x=1|y=2",
  ]) func isNoMistake(line: String) throws {
    #expect(try read(line + "\n").problems == [])
  }
}
