import Base
import Glibc
import TestSupport
import Testing

@testable import Manifest

/// Lists whose lines are servers' folders.
@Suite struct ServerFolderTests {
  /// Listings by URL, as nginx writes them.
  private struct Listings: ServerFolders {
    var pages: [String: String] = [:]
    var finals: [String: String] = [:]

    func listing(of folder: ServerFolder) throws(Errno) -> FolderListing? {
      if folder.url == "http://h/unreadable/" { throw .io }
      guard let page = pages[folder.url], let file = try? file(page) else { return nil }
      return FolderListing(file: file, url: finals[folder.url] ?? folder.url, mediaType: "text/html")
    }

    private func file(_ text: String) throws -> FileDescriptor {
      let folder = try TemporaryFolder()
      defer { try? folder.remove() }
      return try FileDescriptor.open(folder.write(text, to: "page"), O_RDONLY)
    }
  }

  private static func page(_ names: String...) -> String {
    let lines = names.map { "<a href=\"\($0)\">\($0)</a>   24-Nov-2026 02:15   \($0.hasSuffix("/") ? "-" : "1000")\n" }
    return "<html><head><title>Index of /x/</title></head><body><h1>Index of /x/</h1><hr><pre><a href=\"../\">../</a>\n"
      + lines.joined() + "</pre><hr></body></html>\n"
  }

  /// What the list gives: folders end with a slash.
  private func read(_ list: String, _ listings: Listings) throws -> (paths: [String], items: [ManifestItem]) {
    let folder = try TemporaryFolder()
    defer { try? folder.remove() }
    var reader = try ManifestReader(path: folder.write(list, to: "list"), folders: listings)
    var items: [ManifestItem] = []
    while let item = try reader.next() { items.append(item) }
    let paths = items.map { item in
      switch item {
      case .entry(let entry): (entry.folder + [entry.name]).joined(separator: "/")
      case .folder(let folder): folder.path.joined(separator: "/") + "/"
      case .problem(let problem): "! \(problem.message)"
      }
    }
    return (paths, items)
  }

  @Test func whatIsRememberedShows() throws {
    let listings = Listings(pages: [
      "http://h/films/": Self.page("a.mkv", "sub/", "new/"), "http://h/films/sub/": Self.page("b.mkv"),
    ])
    let (paths, items) = try read("http://h/one.mkv\nhttp://h/films/\n  out=Films\n  header=X-Key: k\n", listings)
    #expect(paths == ["one.mkv", "Films/", "Films/a.mkv", "Films/sub/", "Films/sub/b.mkv", "Films/new/"])
    guard case .entry(let entry) = items[4] else { return #expect(Bool(false)) }
    #expect(entry.urls == ["http://h/films/sub/b.mkv"] && entry.line == 2)
    #expect(entry.headers == [HTTPHeader(name: "X-Key", value: "k")])
    #expect(entry.facts?.size == 1000)
    #expect(entry.key == ResourceKey(url: "http://h/films/sub/b.mkv"))
    guard case .folder(let new) = items[5] else { return #expect(Bool(false)) }
    #expect(new.source.depth == 1 && new.source.url == "http://h/films/new/")
  }

  @Test func loginsStayWithTheHost() throws {
    let listings = Listings(
      pages: ["http://u:p@h/f/": Self.page("a.mkv", "s/")], finals: ["http://u:p@h/f/": "http://h/g/"])
    let (_, items) = try read("http://u:p@h/f/\n", listings)
    guard case .entry(let entry) = items[1], case .folder(let folder) = items[2] else {
      return #expect(Bool(false), "\(items)")
    }
    #expect(entry.urls == ["http://u:p@h/g/a.mkv"])
    #expect(folder.source.url == "http://u:p@h/g/s/")
  }

  @Test func aFolderWithinItselfEnds() throws {
    let page = Self.page("a.mkv", "x/")
    let (paths, _) = try read(
      "http://h/x/\n",
      Listings(pages: ["http://h/x/": page, "http://h/x/x/": page], finals: ["http://h/x/x/": "http://h/x/"]))
    #expect(paths.prefix(3) == ["x/", "x/a.mkv", "x/x/"])
    #expect(paths.count == 4 && paths[3].contains("within itself"))
    // Links of the server's disk that lead up: each level has another URL.
    struct Endless: ServerFolders {
      func listing(of folder: ServerFolder) throws(Errno) -> FolderListing? {
        try Listings(pages: [folder.url: ServerFolderTests.page("x/")]).listing(of: folder)
      }
    }
    let folder = try TemporaryFolder()
    defer { try? folder.remove() }
    var reader = try ManifestReader(path: folder.write("http://h/x/\n", to: "list"), folders: Endless())
    var count = 0
    while try reader.next() != nil { count += 1 }
    #expect(count == DirectoryLimits.depth + 2, "the folders, and one warning")
  }

  @Test func namesThatEscapeAreLeftOut() throws {
    let (paths, _) = try read(
      "http://h/x/\n",
      Listings(pages: [
        "http://h/x/": Self.page("..%2f..%2fetc", "/etc/passwd", "http://evil/a.mkv", "%2e%2e/", "ok.mkv")
      ]))
    #expect(paths.prefix(2) == ["x/", "x/ok.mkv"] && paths.count == 3 && paths[2].contains("left out"), "\(paths)")
  }

  @Test func aBrokenListingIsSaid() throws {
    let (paths, _) = try read(
      "http://h/x/\nhttp://h/a.mkv\n", Listings(pages: ["http://h/x/": "<html>no listing</html>"]))
    #expect(paths.count == 3 && paths[0] == "x/" && paths[1].hasPrefix("! the folder x: ") && paths[2] == "a.mkv")
  }

  @Test func whatCannotBeReadEndsTheImport() throws {
    #expect(throws: ManifestError.self) { try read("http://h/a.mkv\nhttp://h/unreadable/\n", Listings()) }
  }

  @Test func twoFoldersOfOneNameAreTold() throws {
    let (paths, _) = try read("http://a/films/\nhttp://b/films/\nhttp://b/films/\n  out=More\n", Listings())
    #expect(paths.count == 3 && paths[0] == "films/" && paths[1].contains("line 1") && paths[2] == "More/")
  }

  @Test func whatSaysMoreOfItselfIsAFile() throws {
    let digest = String(repeating: "0", count: 64)
    let (paths, _) = try read(
      "http://h/x/\n  checksum=sha-256=\(digest)\nhttp://h/watch/\n  resolver=r\nhttp://h/q/?id=1\n", Listings())
    #expect(paths == ["x", "watch", "q"])
  }

  @Test(arguments: [
    ("http://h/a/", "http://h/b/", true), ("http://h/a/", "https://h/b/", true), ("https://h/a/", "http://h/a/", false),
    ("http://u:p@h/a/", "http://h/a/", true), ("http://h/a/", "http://o/a/", false),
    ("http://h:81/a/", "http://h:82/a/", false), ("http://h:80/a/", "http://h/a/", true),
    ("http://h/a/", "http://h.evil/a/", false),
  ])
  func whoMayAnswer(asked: String, answered: String, expected: Bool) {
    #expect(ServerFolder(url: asked).isAnswered(by: answered) == expected)
  }
}
