import Manifest
import Testing

/// What becomes of each link of a listing.
@Suite("Links of listings")
struct DirectoryLinkTests {
  /// Links of `http://h/a/films/` that are names.
  @Test(arguments: [
    ("x.mkv", "x.mkv", "http://h/a/films/x.mkv"), ("./x.mkv", "x.mkv", "http://h/a/films/x.mkv"),
    ("/a/films/x.mkv", "x.mkv", "http://h/a/films/x.mkv"), ("//h/a/films/x.mkv", "x.mkv", "http://h/a/films/x.mkv"),
    ("http://H:80/a/films/x.mkv", "x.mkv", "http://h/a/films/x.mkv"),
    ("https://h:8443/a/films/x.mkv", "x.mkv", "http://h/a/films/x.mkv"),
    ("/%61/fil%6Ds/x.mkv", "x.mkv", "http://h/a/films/x.mkv"),
    ("x.mkv?token=1&amp;a=b", "x.mkv", "http://h/a/films/x.mkv?token=1&a=b"),
    ("x.mkv#t=1", "x.mkv", "http://h/a/films/x.mkv"), ("sub/", "sub/", "http://h/a/films/sub/"),
    ("../films/x.mkv", "x.mkv", "http://h/a/films/x.mkv"), ("%2E%2E%2E", "...", "http://h/a/films/%2E%2E%2E"),
    ("a%0Ab", "a_b", "http://h/a/films/a%0Ab"), ("x%20", "x", "http://h/a/films/x%20"),
    ("gpj.%E2%80%AEexe", "gpj._exe", "http://h/a/films/gpj.%E2%80%AEexe"),
    ("x.mkv%", "x.mkv%", "http://h/a/films/x.mkv%25"), ("a&#38;b", "a&b", "http://h/a/films/a&b"),
    ("ümläut", "ümläut", "http://h/a/films/%C3%BCml%C3%A4ut"), (" x y ", "x y", "http://h/a/films/x%20y"),
    ("back\\slash", "back\\slash", "http://h/a/films/back%5Cslash"),
  ]) func namesAndURLs(link: String, name: String, url: String) {
    let directory = readDirectory(directoryPage([link]), url: "http://h/a/films/")
    #expect(directory.names == [name] && directory.entries.first?.url == url)
    #expect(directory.fault == nil && directory.problems.map(\.kind) == [.above])
  }

  /// Links that are none, and why.
  @Test(arguments: [
    ("", DirectoryProblem.Kind.itself), ("#top", .itself), ("./", .itself), ("/a/films/", .itself),
    ("/a/films", .itself), ("http://h/a/films/", .itself), ("sub/../", .itself), ("..", .above), ("/", .above),
    ("/a", .above), ("/a/", .above), ("../../../../../", .above), ("http://h", .above),
    ("?C=N;O=D", .sorting), ("/a/films/?C=S;O=A", .sorting), ("sub/?C=M;O=A", .sorting),
    ("http://other/a/films/x.mkv", .otherHost), ("http://h:81/a/films/x.mkv", .otherHost),
    ("https://other/a/films/x", .otherHost), ("//other/x", .otherHost), ("http://h.evil/a/films/x", .otherHost),
    ("/b/x.mkv", .elsewhere), ("../x.mkv", .elsewhere), ("/icons/movie.gif", .elsewhere), ("/a/filmsx", .elsewhere),
    ("/A/films/x.mkv", .elsewhere), ("sub/x.mkv", .deeper), ("sub/sub/", .deeper), ("/a/films//x", .deeper),
    ("%2e%2e%2f%2e%2e%2fetc", .badName), ("%2e%2e", .badName), ("%2e%2e/", .badName), ("%2e", .badName),
    ("x%2Fy", .badName), ("x%00y", .badName), ("%20", .badName), (".//", .badName), ("javascript:alert(1)", .badURL),
    ("mailto:a@b", .badURL), ("ftp://h/a/films/x", .badURL), ("data:text/html,x", .badURL), ("http:x", .badURL),
    ("http://[::1/x", .badURL), ("x\u{1}y", .badURL), (String(repeating: "a", count: 9000), .tooLong),
    (String(repeating: "a", count: 70_000), .tooLong),
  ]) func linksThatAreNoNames(link: String, kind: DirectoryProblem.Kind) {
    let directory = readDirectory(directoryPage(["first", link, "last"]), url: "http://h/a/films/")
    #expect(directory.names == ["first", "last"] && directory.fault == nil, "\(directory.names)")
    let count = directory.count(kind) - (kind == .above ? 1 : 0)
    #expect(count == 1 && directory.problems.count == (kind == .above ? 1 : 2), "\(directory.problems)")
    #expect(directory.problems.last?.line == (kind == .above ? 1 : 3) || link.isEmpty)
  }

  /// A name that is there twice, as file and as folder too; but an icon may link where its name links.
  @Test func duplicates() {
    let directory = readDirectory(directoryPage(["a", "b", "a", "%61", "a/", "b"]))
    #expect(directory.names == ["a", "b"] && directory.count(.duplicate) == 4)
    let forms = readDirectory(directoryPage(["caf\u{E9}", "cafe\u{301}"]))
    #expect(forms.entries.map(\.url) == ["http://h/films/caf%C3%A9", "http://h/films/cafe%CC%81"])
    let icon =
      "<h1>Index of /</h1><pre><a href=\"a\"><img src=\"i\"></a> <a href=\"a\">a</a>  2023-11-14 22:17    4 \n</pre>"
    let withIcon = readDirectory(icon)
    #expect(withIcon.names == ["a"] && withIcon.entries.first?.size == 4 && withIcon.problems.isEmpty)
  }

  /// `<base>` is heeded, and leads nowhere else.
  @Test func baseOfAPage() {
    func read(_ base: String) -> Directory {
      let page = directoryPage(["x.mkv"]).replacing("</title>", with: "</title><base href=\"\(base)\">")
      return readDirectory(page, url: "http://h/other/name")
    }
    #expect(read("/other/").names == ["x.mkv"] && read("http://h/other/").names == ["x.mkv"])
    #expect(read("http://evil/other/").names == [] && read("http://evil/other/").count(.otherHost) == 2)
    #expect(read("/elsewhere/").count(.elsewhere) == 1 && read("mailto:x").names == ["x.mkv"])
    // Each link is joined with it: one that is long would take a minute for a few megabytes of links.
    let long = read("/\(String(repeating: "x", count: 9000))/")
    #expect(long.names == ["x.mkv"] && long.count(.tooLong) == 1)
  }

  /// The folder that the user named may have 32 folders below each other: links on a server's disk can make a cycle
  /// that no URL shows.
  @Test func depth() {
    let page = Array(directoryPage(["sub/", "x"]).utf8)
    #expect(readDirectory(page, depth: DirectoryLimits.depth - 1).names == ["sub/", "x"])
    let deepest = readDirectory(page, depth: DirectoryLimits.depth)
    #expect(deepest.names == ["x"] && deepest.count(.tooDeep) == 1)
  }

  /// A listing's own URL without a slash at its end: a page's links are those of the folder above, as in a browser;
  /// other forms are of the folder itself.
  @Test func listingWithoutASlash() {
    #expect(readDirectory(directoryPage(["x"]), url: "http://h/films").entries.map(\.url) == ["http://h/x"])
    let json = "[{\"name\":\"x\",\"type\":\"file\",\"size\":1}]"
    for url in ["http://h/films", "http://h/films?a=b", "http://h/films/"] {
      let directory = readDirectory(json, url: url, mediaType: "application/json")
      #expect(directory.entries.map(\.url) == ["http://h/films/x"])
    }
    #expect(readDirectory("", url: "ftp://h/").fault == .badURL)
  }

  /// WebDAV: absolute URLs, folders without a slash, properties and resources that the server refuses, other
  /// namespaces.
  @Test func multistatus() {
    func response(_ href: String, _ properties: String, status: String = "HTTP/1.1 200 OK") -> String {
      "<d:response><d:href>\(href)</d:href><d:propstat><d:prop>\(properties)</d:prop><d:status>\(status)</d:status>"
        + "</d:propstat></d:response>"
    }
    let folder = "<d:resourcetype><d:collection/></d:resourcetype>"
    let text =
      "<d:multistatus xmlns:d=\"DAV:\" xmlns:o=\"other\">"
      + response("/films", folder) + response("http://h/films/sub", folder)
      + response("https://h:8443/films/a.mkv", "<d:getcontentlength>5</d:getcontentlength>")
      + response("/films/b.mkv", "<d:getcontentlength>6</d:getcontentlength>", status: "HTTP/1.1 404 Not Found")
      + response("/films/c.mkv", "<o:getcontentlength>7</o:getcontentlength>")
      + response("/films/d.mkv", "<d:getcontentlength>-8</d:getcontentlength>")
      + "<d:response><d:href>/films/e</d:href><d:status>HTTP/1.1 403 Forbidden</d:status></d:response>"
      + "<d:response></d:response>" + response("/films/sub/deeper", "") + response("http://evil/films/x", "")
      + "</d:multistatus>"
    let directory = readDirectory(text, mediaType: "text/xml")
    #expect(directory.names == ["sub/", "a.mkv", "b.mkv", "c.mkv", "d.mkv"] && directory.fault == nil)
    #expect(directory.entries.map(\.size) == [nil, 5, nil, nil, nil])
    #expect(directory["sub"]?.url == "http://h/films/sub/" && directory["a.mkv"]?.url == "http://h/films/a.mkv")
    #expect(
      directory.problems.map(\.kind) == [.itself, .refused, .badItem, .deeper, .otherHost]
        && directory.problems.allSatisfy { $0.count == 1 })
  }
}
