import Glibc
import Manifest
import TestSupport
import Testing

/// What is no listing, and listings that are hostile.
@Suite("Pages that are no listings")
struct DirectoryPageTests {
  @Test(arguments: [
    (
      "<html><title>Sign in</title><form action=login><input name=u><input type=Password></form><a href=help>",
      "asks for a password"
    ),
    ("<html><title>Index of /</title><h1>Index of /</h1><input type=password><ul><li><a href=a>a</a></ul>", "password"),
    ("<html><title>My films</title><body><ul><li><a href=\"a.mkv\">A</a></ul></body></html>", "index.html"),
    ("<html><title>Index of my thoughts</title><ul><li><a href=a>a</a></ul></html>", "index.html"),
    ("<html><meta http-equiv=Refresh content='0; url=/login'></html>", "leads elsewhere"),
    ("<html><body><div id=app></div><script src=app.js></script></body></html>", "script fills"),
    ("<html><body>It works!</body></html>", "without links"), ("", "without links"),
    ("<h1>404</h1><ul><li><a href='?page=2&order=asc'>next</a></ul>", "index.html"),
  ]) func pages(_ text: String, reason: String) {
    let directory = readDirectory(text)
    guard case .notAListing(let why) = directory.fault else {
      Issue.record("\(directory)")
      return
    }
    #expect(why.contains(reason), "\(why)")
  }

  @Test(arguments: [
    ("[{\"id\":1}]", "application/json", "JSON of another kind"), ("{\"error\":\"no\"}", "application/json", "another"),
    ("<rss><channel/></rss>", "text/xml", "XML of another kind"),
    ("<multistatus><response/></multistatus>", "text/xml", "XML of another kind"),
    ("<?xml version=\"1.0\"?><html/>", "", "XML of another kind"), ("hello, world", "text/plain", "neither"),
    ("", "text/plain", "empty"), (String(repeating: " ", count: 100_000) + "[]", "text/plain", "white space"),
  ]) func otherDocuments(_ text: String, type: String, reason: String) {
    guard case .notAListing(let why) = readDirectory(text, mediaType: type).fault else {
      Issue.record("\(readDirectory(text, mediaType: type))")
      return
    }
    #expect(why.contains(reason), "\(why)")
  }

  @Test func otherTypesAreFiles() {
    for type in ["video/mp4", "Text/CSS ; charset=x", "image/svg"] {
      guard case .file = readDirectory("x", mediaType: type).fault else {
        Issue.record("\(type)")
        continue
      }
    }
    #expect(readDirectory(directoryPage(["a"]), mediaType: "Application/XHTML+XML; charset=utf-8").names == ["a"])
  }

  @Test func emptyFoldersAreListings() {
    #expect(readDirectory(directoryPage([])).fault == nil)
    #expect(readDirectory("[\n]", mediaType: "application/json").fault == nil)
    #expect(readDirectory("<?xml version=\"1.0\"?><list>\n</list>", mediaType: "text/xml").fault == nil)
    #expect(readDirectory("", mediaType: "application/json").fault == .cut)
    #expect(readDirectory("[", mediaType: "application/json").fault == .cut)
    #expect(readDirectory("<list>", mediaType: "text/xml").fault == .cut)
  }

  /// Links before the heading, and outside of lists, are the page's own.
  @Test func linksBesideTheList() {
    let text =
      "<html><a href=before>x</a><ul><li><a href=menu>x</a></ul><h1>Index of /films/</h1><a href=beside>x</a>"
      + "<ul><li><a href=name>x</a></li></ul><footer><a href=footer>x</a></footer></html>"
    #expect(readDirectory(text).names == ["name"])
  }

  /// Columns that look like what they are not.
  @Test(
    arguments: [
      ("2023-11-14 22:13    4   ", 4, 1_699_999_980), ("2023-11-14 22:13    2026 a film", nil, 1_699_999_980),
      ("2023-11-14 22:13    2026", nil, 1_699_999_980), ("14-Nov-2023 22:13   2026", 2026, 1_699_999_980),
      ("14-Nov-2023 22:13   -", nil, 1_699_999_980), ("14-Nov-2023 22:13   -7", nil, 1_699_999_980),
      ("14-Nov-2023 22:13   99999999999999999999", nil, 1_699_999_980), ("4", nil, nil), ("", nil, nil),
      ("99-Nov-2023 22:13   7", nil, nil), ("14-Nov-99999 22:13   7", nil, nil), ("14-Nov-2023", nil, nil),
      ("14-Nov-2023 22:13   1.5K", nil, 1_699_999_980), ("14-Nov-2023 22:13   1,536", nil, 1_699_999_980),
      ("14-Nov-2023 22:13", nil, 1_699_999_980),
    ] as [(String, Int64?, Int64?)]) func columns(_ text: String, size: Int64?, modified: Int64?)
  {
    let page = "<h1>Index of /</h1><pre><a href=\"x\">x</a>  \(text)\n 5\n</pre></html>"
    let entry = readDirectory(page).entries.first
    #expect(entry?.size == size && entry?.modified == modified, "\(String(describing: entry))")
  }

  /// A table's first column that can be a size is it.
  @Test func cells() {
    func size(_ cells: String...) -> Int64? {
      let row = cells.map { $0.hasPrefix("<td") ? $0 : "<td>\($0)</td>" }.joined()
      let page = "<h1>Index of /</h1><table><tr><td><a href=\"x\">x</a></td>\(row)</tr></table></html>"
      return readDirectory(page).entries.first?.size
    }
    #expect(size("7") == 7 && size("x", "7") == 7 && size("1.5K", "7") == nil && size("-", "7") == nil)
    #expect(size("<td data-size=\"1234567\">1.2 MiB</td>", "7") == 1_234_567)
    #expect(size("<td data-order=\"-1\">&mdash;</td>", "7") == nil && size("1,536 Bytes") == 1536)
    #expect(size("2023-11-14 22:13", "1.5K", "2026") == nil && size("2023-11-14 22:13", "2026") == nil)
  }

  /// The bounds: of names, of bytes, of depth, of a tag.
  @Test func bounds() {
    let page = directoryPage((0...DirectoryLimits.names).map { "\($0)" })
    let many = readDirectory(page)
    #expect(many.fault == .tooMany)
    #expect(many.entries.count == DirectoryLimits.names)
    let deep = "<h1>Index of /</h1><ul>" + String(repeating: "<div>", count: 5000) + "</ul></html>"
    guard case .malformed = readDirectory(deep).fault else {
      Issue.record("\(String(describing: readDirectory(deep).fault))")
      return
    }
    let long = "<h1>Index of /</h1><ul><li><a href=a>a</a></li><!--" + String(repeating: "x", count: 1 << 20)
    #expect(readDirectory(long).fault != nil && readDirectory(long).names == ["a"])
  }

  /// libxml2 compares each attribute of a tag with all before it.
  @Test(arguments: [(1000, nil), (1100, "more attributes")] as [(Int, String?)])
  func attributesOfATag(_ count: Int, _ words: String?) {
    let tag = "<hr " + (0..<count).map { "a\($0)" }.joined(separator: " ") + ">"
    let directory = readDirectory(directoryPage(["a"]).replacing("<hr>", with: tag))
    if let words {
      #expect(directory.fault?.description.contains(words) == true, "\(directory)")
    } else {
      #expect(directory.fault == nil && directory.names == ["a"])
    }
  }

  /// 200,000 names with long URLs, in a process of its own: the page is many times as long as what its reader keeps.
  @Test(arguments: ["html", "json", "dav"]) func manyNamesTakeLittleMemory(form: String) async {
    await #expect(processExitsWith: .success) { [form] in
      let type = form == "html" ? "text/html" : form == "json" ? "application/json" : "text/xml"
      let reader = try DirectoryReader(url: "http://h/films/", mediaType: type)
      let filler = String(repeating: "a", count: 240)
      let starts = [
        "html": "<h1>Index of /</h1><pre>", "json": "[", "dav": "<multistatus xmlns=\"DAV:\">",
      ]
      let ends = ["html": "</pre></html>", "json": "]", "dav": "</multistatus>"]
      func feed(_ text: String) throws {
        try Array(text.utf8).withUnsafeBytes { try reader.read($0) }
      }
      try feed(starts[form] ?? "")
      var before = rusage()
      getrusage(Int32(RUSAGE_SELF.rawValue), &before)
      var names = 0
      for number in 0..<200_000 {
        let name = "\(number)\(filler)"
        switch form {
        case "html": try feed("<a href=\"\(name)\">x</a>   14-Nov-2023 22:13   \(number)\n")
        case "json":
          try feed("\(number > 0 ? "," : "")\n{\"name\":\"x\",\"url\":\"./\(name)\",\"is_dir\":false,\"size\":1}")
        default:
          try feed(
            "<response><href>/films/\(name)</href><propstat><prop><getcontentlength>1</getcontentlength></prop>"
              + "<status>HTTP/1.1 200 OK</status></propstat></response>")
        }
        names += reader.takeEntries().count
      }
      try feed(ends[form] ?? "")
      try reader.finish()
      names += reader.takeEntries().count
      var after = rusage()
      getrusage(Int32(RUSAGE_SELF.rawValue), &after)
      let grown = after.ru_maxrss - before.ru_maxrss
      print("\(form): 200,000 names, \(grown) KiB more")
      // Their URLs alone are 50 MB.
      if names != 200_000 || grown > 24 << 10 { exit(1) }
    }
  }
}
