import TestSupport
import Testing

@testable import Manifest

@Suite("Safe names")
struct SafeNameTests {
  @Test(arguments: [
    ("song.mp3", "song.mp3"), (".hidden", ".hidden"), ("...", "..."), ("a\\b", "a\\b"), ("Ä é.mp3", "Ä é.mp3"),
    (".", "_"), ("..", "__"), (" .. ", "__"), ("a/b", "a_b"), ("/", "_"), ("a\0b", "a_b"), ("a\nb\t", "a_b_"),
    ("\u{7F}\u{85}\u{9F}", "___"), ("evil\u{202E}gpj.exe", "evil_gpj.exe"), ("a\u{2066}b\u{2069}", "a_b_"),
    ("a\u{2028}b", "a_b"), ("  a b  ", "a b"), ("\u{3000}a\u{A0}", "a"), ("שלום\u{200F}.mp3", "שלום\u{200F}.mp3"),
    ("👩‍👩‍👧.png", "👩‍👩‍👧.png"), ("-rf", "-rf"),
  ])
  func component(_ text: String, _ wanted: String) throws {
    let name = try #require(SafeName.component(text))
    #expect(name.utf8.elementsEqual(wanted.utf8))
    #expect(SafeName.isSafe(name))
    #expect(SafeName.isSafe(text) == text.utf8.elementsEqual(wanted.utf8))
  }

  @Test(arguments: ["", " ", "\u{3000}\u{A0}"])
  func nothing(_ text: String) {
    #expect(SafeName.component(text) == nil)
    #expect(!SafeName.isSafe(text))
  }

  @Test func normalizationIsKept() throws {
    let composed = "caf\u{E9}.mp3"
    let decomposed = "cafe\u{301}.mp3"
    let names = try read("https://h/1\n out=\(composed)\nhttps://h/2\n out=\(decomposed)\n").entries.map {
      Array($0.name.utf8)
    }
    #expect(names == [Array(composed.utf8), Array(decomposed.utf8)])
  }

  @Test func longNames() throws {
    func cut(_ text: String) throws -> String {
      let name = try #require(SafeName.component(text))
      #expect(name.utf8.count <= 255 && SafeName.isSafe(name))
      return name
    }
    let a300 = String(repeating: "a", count: 300)
    #expect(try cut(a300) == String(repeating: "a", count: 255))
    #expect(try cut(a300 + ".mp3") == String(repeating: "a", count: 251) + ".mp3")
    #expect(try cut(a300 + ".tar.gz") == String(repeating: "a", count: 248) + ".tar.gz")
    #expect(try cut(String(repeating: "a", count: 255)).utf8.count == 255)
    #expect(try cut(String(repeating: "ä", count: 200)) == String(repeating: "ä", count: 127))
    #expect(try cut(String(repeating: "👩‍👩‍👧", count: 50) + ".png") == String(repeating: "👩‍👩‍👧", count: 13) + ".png")
    #expect(try cut("e" + String(repeating: "\u{301}", count: 300)).utf8.count == 255)
    #expect(try cut(String(repeating: "a", count: 254) + " b") == String(repeating: "a", count: 254))
    #expect(try cut("a" + String(repeating: " ", count: 300) + ".mp3") == "a.mp3")
    // A character of 601 bytes is left out, and the blank before it.
    let letter = "e" + String(repeating: "\u{301}", count: 300)
    #expect(try cut(". \(letter)") == "_")
    #expect(try cut(".. \(letter)") == "__")
    let path = "a/.. \(letter)/b"
    #expect(SafeName.folders(path.utf8.span) == ["a", "__", "b"])
  }

  @Test(arguments: [
    ("song.mp3", 2, "song (2).mp3"), ("a.tar.gz", 2, "a (2).tar.gz"), ("A.TAR.XZ", 10, "A (10).TAR.XZ"),
    ("README", 3, "README (3)"), (".bashrc", 2, ".bashrc (2)"), (".tar.gz", 2, ".tar (2).gz"),
    ("Vol. 2", 2, "Vol. 2 (2)"),
    ("a.user.js", 2, "a.user (2).js"), ("v2.0", 2, "v2.0 (2)"), ("a.gz", 2, "a (2).gz"), ("x.", 2, "x. (2)"),
  ])
  func numbered(_ name: String, _ number: Int, _ wanted: String) {
    #expect(SafeName.numbered(name, number) == wanted)
  }

  @Test func numberedLongNames() {
    let name = String(repeating: "ü", count: 125) + ".flac"
    let second = SafeName.numbered(name, 2)
    #expect(second == String(repeating: "ü", count: 123) + " (2).flac")
    #expect(SafeName.numbered(name, 1_000_000).utf8.count <= 255)
  }

  @Test(arguments: [
    ("a.mp3", "mp3"), ("A.MP3", "mp3"), ("a.7z", "7z"), ("a.b.c", "c"), ("a.12345678", nil), ("a.x2345678", "x2345678"),
    ("a.x23456789", nil), ("a", nil), (".mp3", nil), ("a.", nil), ("Mr. Smith", nil), ("a.m p", nil), ("a.é", nil),
    ("v1.2", nil),
    ("", nil),
  ])
  func extensions(_ name: String, _ wanted: String?) {
    #expect(SafeName.fileExtension(name) == wanted)
    #expect(SafeName.hasExtension(name) == (wanted != nil))
  }

  @Test func appending() {
    #expect(SafeName.appendingExtension("a", "mp3") == "a.mp3")
    #expect(SafeName.appendingExtension("a.MP3", "mp3") == "a.MP3")
    #expect(SafeName.appendingExtension("a.ogg", "mp3") == "a.ogg.mp3")
    #expect(
      SafeName.appendingExtension(String(repeating: "a", count: 255), "mp3") == String(repeating: "a", count: 251)
        + ".mp3")
    #expect(SafeName.isSafe(SafeName.appendingExtension("a", "m/p")))
  }

  @Test(arguments: [
    ("a/b", ["a", "b"]), ("/a//b/", ["a", "b"]), ("", []), ("..", []), ("a/../..", []), ("../a", ["a"]),
    ("./a/.", ["a"]),
    ("a/ ../b", ["a", "__", "b"]), ("a/ /b", ["a", "b"]), ("a\0/b\u{202E}", ["a_", "b_"]),
  ])
  func folders(_ path: String, _ wanted: [String]) { #expect(SafeName.folders(path.utf8.span) == wanted) }
}
