import Glibc
import TestSupport
import Testing

@testable import Server
@testable import mediafs

/// What the program, its archives and its package say of themselves.
@Suite struct VersionTests {
  private static let root = #filePath.split(separator: "/").dropLast(3).reduce("") { "\($0)/\($1)" }

  /// What it says of the libraries is what other programs say that have the same ones loaded.
  @Test func theProgramTellsWhatItRunsWith() throws {
    let lines = try Command.succeed([builtProduct("mediafs"), "--version"]).split(separator: "\n").map(String.init)
    #expect(lines.first == "mediafs \(mediafsVersion)", "scripts read the first line")
    var facts: [String: String] = [:]
    for line in lines.dropFirst() {
      let colon = try #require(line.firstRange(of: ": "), "\(line)")
      facts[String(line[..<colon.lowerBound])] = String(line[colon.upperBound...])
    }
    let python = """
      import os, sqlite3, ssl
      print(sqlite3.sqlite_version, ssl.OPENSSL_VERSION.split()[1], ' '.join((os.uname().sysname, os.uname().release)))
      """
    let others = try Command.succeed(["/usr/bin/python3", "-c", python]).split(whereSeparator: \.isWhitespace)
    #expect(facts["SQLite"] == String(others[0]) && facts["libcrypto"] == String(others[1]), "\(facts)")
    #expect(facts["kernel"] == "\(others[2]) \(others[3])", "\(facts)")
    let curl = try Command.succeed(["curl", "--version"])
    let libcurl = try #require(facts["libcurl"])
    #expect(curl.contains("libcurl/\(libcurl.prefix { $0 != " " }) "), "\(libcurl) is not in \(curl)")
    for name in ["libfuse", "libxml2", "ncurses"] {
      #expect(facts[name]?.wholeMatch(of: #/\d+\.\d+(\.\d+)?/#) != nil, "\(name): \(facts)")
    }
    #expect(facts["FUSE passthrough"] != nil && facts["Landlock"] != nil && facts["unique mount ids"] != nil)
    // A build for debugging is the same for every commit, so that none costs a compilation.
    #expect(facts["commit"]?.isEmpty == false)
  }

  /// One place says the version: the others have it from there, or are the same.
  @Test func allSayTheSame() throws {
    #expect(try Command.succeed(["\(Self.root)/Scripts/version"]) == mediafsVersion + "\n")
    for (file, start) in [
      ("CHANGELOG.md", "## \(mediafsVersion) ("), ("debian/changelog", "mediafs (\(mediafsVersion)) "),
    ] {
      let text = readText("\(Self.root)/\(file)")
      let heading = text.split(separator: "\n").first { $0.hasPrefix("## ") || $0.hasPrefix("mediafs (") }
      #expect(heading?.hasPrefix(start) == true, "\(file): \(heading ?? "nothing")")
    }
  }

  /// The commit of a clone, of a changed one, of an archive, and of sources that are neither.
  @Test func theCommit() throws {
    let place = try TestSupport.TemporaryFolder()
    defer { do { try place.remove() } catch { Issue.record("\(error)") } }
    try place.makeFolder("Scripts")
    try Command.succeed(["cp", "\(Self.root)/Scripts/commit", place.file("Scripts/commit")])
    func commit() throws -> String { try Command.succeed([place.file("Scripts/commit")]) }
    #expect(try commit().isEmpty)
    func git(_ arguments: String...) throws -> String {
      try Command.succeed(
        ["git", "-C", place.path, "-c", "user.name=a", "-c", "user.email=a@b", "-c", "commit.gpgsign=false"] + arguments
      )
    }
    _ = try git("init", "--quiet")
    _ = try git("add", "Scripts")
    _ = try git("commit", "--quiet", "--message", "a")
    let head = try git("rev-parse", "--short=12", "HEAD").filter { !$0.isWhitespace }
    #expect(try commit() == head + "\n")
    try place.write("a new file is no change\n", to: "new")
    #expect(try commit() == head + "\n")
    try Command.succeed(["sh", "-c", "echo '#' >> '\(place.file("Scripts/commit"))'"])
    #expect(try commit() == head + "+\n")
    try place.write("archived\n", to: "COMMIT")
    #expect(try commit() == "archived\n")
  }
}
