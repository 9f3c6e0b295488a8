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
      ("ä'ö ü'", ["äö ü"]), ("\u{301}'\u{301}'", ["\u{301}\u{301}"]),
      ("a\\'\u{301}b c", ["a'\u{301}b", "c"]), ("\r", ["\r"]), ("a\r\nb", ["a\r", "b"]),
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
    for order in [LauncherOrder.complete(file), .ask("r", line: "{}"), .ask("r", line: ""), .end("r")] {
      let packet = try #require(order.packet)
      #expect(LauncherOrder(packet: packet) == order)
      #expect(LauncherOrder(packet: packet.dropLast()) == nil && LauncherOrder(packet: packet + [0]) == nil)
      #expect(LauncherOrder(packet: [77] + packet.dropFirst()) == nil)
    }
    let long = String(repeating: "u", count: LauncherOrder.limit)
    #expect(LauncherOrder.complete(CompletedFile(path: "a", file: "/l/a", url: long, size: 1)).packet == nil)
    #expect(LauncherOrder.ask("r", line: long).packet == nil)
    // One ask is one line.
    #expect(LauncherOrder(packet: try #require(LauncherOrder.ask("r", line: "{}\n{}").packet)) == nil)
    let words = LauncherWords(.info, String(repeating: "ä", count: LauncherWords.limit))
    #expect(words.packet.count == 4096 && LauncherWords(packet: words.packet)?.kind == .info)
    #expect(LauncherWords(packet: []) == nil && LauncherWords(packet: [77]) == nil)
    let answer = LauncherWords(packet: LauncherWords(.answer, "r\0{}").packet)
    #expect(answer?.ofResolver?.name == "r" && answer?.ofResolver?.words == "{}")
    #expect(LauncherWords(.answer, "r").ofResolver == nil)
  }
}

extension String {
  fileprivate func split(_ separator: Character) -> [String] { split(separator: separator).map(String.init) }
}
