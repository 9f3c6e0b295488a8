import Testing

@testable import Server

/// How `--on complete CMD` splits CMD.
@Suite struct CommandWordsTests {
  @Test(
    arguments: [
      ("", []), ("  ", []), ("a", ["a"]), (" a  b\tc\nd ", ["a", "b", "c", "d"]), ("a  b", ["a", "b"]),
      ("''", [""]), (#""" x"#, ["", "x"]), ("'a b'", ["a b"]), (#""a b""#, ["a b"]), (#"a' 'b" "c\ d"#, ["a b c d"]),
      // Between single quotes nothing is special; between double quotes a backslash before two characters.
      (#"'\"$x\'"#, [#"\"$x\"#]), (#""\"\\\n\$'""#, [#""\\n\$'"#]), (#"\'\"\\\a"#, [#"'"\a"#]),
      // What a shell would do something with.
      ("$HOME ~ * ? `x` $(x) a;b &&c |d >e #f !g {h,i}", "$HOME ~ * ? `x` $(x) a;b &&c |d >e #f !g {h,i}".split(" ")),
      ("ä'ö ü'", ["äö ü"]), ("\u{301}'\u{301}'", ["\u{301}\u{301}"]), ("\r", ["\r"]), ("a\r\nb", ["a\r", "b"]),
    ] as [(String, [String])])
  func splits(_ text: String, _ words: [String]) throws {
    #expect(try CommandWords.split(text) == words)
    #expect(try CommandWords.split(CommandWords.joined(words)) == words)
  }

  @Test(arguments: ["'", "a'", #"""#, #""\""#, #"a\"#, #"'\''"#]) func whatHasNoEndIsRefused(_ text: String) {
    #expect(throws: MountOptionError.self) { try CommandWords.split(text) }
  }

  @Test func aPacketIsWhatWasSent() throws {
    let file = CompletedFile(path: "a/-b \n", file: "/l/a", url: "", size: 1 << 50)
    let packet = try #require(file.packet)
    #expect(CompletedFile(packet: packet) == file)
    #expect(CompletedFile(packet: packet.dropLast()) == nil && CompletedFile(packet: packet + [0]) == nil)
    let url = String(repeating: "u", count: CompletedFile.limit)
    #expect(CompletedFile(path: "a", file: "/l/a", url: url, size: 1).packet == nil)
    let words = LauncherWords(.info, String(repeating: "ä", count: LauncherWords.limit))
    #expect(words.packet.count == LauncherWords.limit && LauncherWords(packet: words.packet)?.kind == .info)
    #expect(LauncherWords(packet: []) == nil && LauncherWords(packet: [77]) == nil)
  }
}

extension String {
  fileprivate func split(_ separator: Character) -> [String] { split(separator: separator).map(String.init) }
}
