import Base
import Glibc
import TestSupport
import Testing

/// The documents say which tests hold what they promise: those tests exist, and no promise and no row is without one.
@Suite("Documents")
struct DocumentTests {
  static let root = #filePath.split(separator: "/").dropLast(3).reduce("") { "\($0)/\($1)" }

  static func text(_ path: String) throws -> String {
    let file = try FileDescriptor.open("\(root)/\(path)", O_RDONLY)
    var bytes = [UInt8](repeating: 0, count: Int(try file.status().st_size))
    let count = try bytes.withUnsafeMutableBytes { try file.readFully(at: 0, into: $0) }
    return String(decoding: bytes[..<count], as: UTF8.self)
  }

  /// A test as documents name it: `FaultTests/MirrorTests.secrets`, or without its target.
  private struct Name: Hashable, CustomStringConvertible {
    var target: String?
    var suite: String
    var function: String
    var description: String { (target.map { "\($0)/" } ?? "") + "\(suite).\(function)" }
  }

  /// Every test of the package, with its target and without.
  private static func tests() throws -> Set<Name> {
    let files = try Command.succeed(["find", "\(root)/Tests", "-path", "*Tests/*.swift"]).split(separator: "\n")
    var found: Set<Name> = []
    for file in files {
      let target = String(file.split(separator: "/").dropLast().last ?? "")
      var suite: String?
      var isSuite = false
      var isTest = false
      for line in try text(String(file.dropFirst(root.count + 1))).split(separator: "\n") {
        if line.contains("@Suite") { isSuite = true }
        if let match = line.firstMatch(of: #/\b(struct|class|extension) (\w+)/#), isSuite || match.1 == "extension" {
          suite = String(match.2)
          isSuite = false
        }
        if line.contains("@Test") { isTest = true }
        if isTest, let suite, let match = line.firstMatch(of: #/\bfunc (\w+)/#) {
          for target in [target, nil] {
            found.insert(Name(target: target, suite: suite, function: String(match.1)))
          }
          isTest = false
        }
      }
    }
    return found
  }

  /// The tests that a piece of a document names.
  private static func names(in text: some StringProtocol) -> [Name] {
    String(text).matches(of: #/`(?:(\w+Tests)\/)?([A-Z]\w*(?:Tests|Scenarios|Tables))\.(\w+)`/#).map {
      Name(target: $0.1.map(String.init), suite: String($0.2), function: String($0.3))
    }
  }

  @Test(arguments: [
    "docs/SEMANTICS.md", "docs/RELIABILITY.md", "docs/SECURITY.md", "docs/RESOLVERS.md", "mount-helper/PROTOCOL.md",
  ])
  func everyTestThatIsNamedExists(document: String) throws {
    let tests = try Self.tests()
    #expect(tests.count > 500, "the tests were not found")
    let text = try Self.text(document)
    let named = Self.names(in: text)
    #expect(!named.isEmpty || document == "docs/SECURITY.md", "no test is named in full")
    for name in named { #expect(tests.contains(name), "\(document) names \(name), and there is no such test") }
    // Suites and targets by their names alone, too.
    var known = Set(tests.map(\.suite))
    known.formUnion(tests.compactMap(\.target))
    for match in text.matches(of: #/\b([A-Z]\w*(?:Tests|Scenarios|Tables))\b/#) {
      #expect(known.contains(String(match.1)), "\(document) names \(match.1), and there is no such suite")
    }
  }

  @Test func everyPromiseNamesItsTests() throws {
    let sections = try Self.text("docs/SEMANTICS.md").split(separator: "\n## ")
    let promises = sections.filter { $0.prefixMatch(of: #/P\d+ /#) != nil }
    #expect(promises.map { $0.prefix { $0 != " " } } == (1...12).map { "P\($0)" })
    for promise in promises {
      // The promise itself, and each of its bullets.
      let parts = promise.split(separator: "\n- ", omittingEmptySubsequences: false)
      for part in parts.dropFirst() {
        #expect(!Self.names(in: part).isEmpty, "a bullet without a test: \(part.prefix(80))")
      }
      #expect(parts.count > 1 || !Self.names(in: promise).isEmpty, "no test: \(promise.prefix(80))")
      #expect(promise.contains("\n- Tests: "), "no test of the promise itself: \(promise.prefix(80))")
    }
  }

  @Test("Each decision is named by its number, and has one page")
  func decisions() throws {
    let files = try Command.succeed(["find", "\(Self.root)/docs/decisions", "-name", "*.md"]).split(separator: "\n")
    #expect(files.count > 20)
    for file in files {
      let name = String(file.split(separator: "/").last ?? "")
      let text = try Self.text("docs/decisions/\(name)")
      #expect(text.hasPrefix("# \(name.prefix(4)): "), "\(name) does not begin with its number")
      let words = text.utf8.split { $0 == UInt8(ascii: " ") || $0 == UInt8(ascii: "\n") }.count
      #expect(words <= 650, "\(name) has \(words) words, more than a page")
    }
  }

  /// Every table whose last column is "test" has one in each row: a name, or a case of the table of faults in quotes
  /// (FaultTests compares those).
  @Test(arguments: [("docs/RELIABILITY.md", 70), ("mount-helper/PROTOCOL.md", 17)])
  func everyRowNamesItsTest(_ document: String, _ least: Int) throws {
    var rows = 0
    var isTested = false
    for line in try Self.text(document).split(separator: "\n", omittingEmptySubsequences: false) {
      guard line.hasPrefix("|") else {
        isTested = false
        continue
      }
      let cells = line.split(separator: "|").map { $0.trimming(while: { $0 == " " }) }
      if cells.last == "test" {
        isTested = true
      } else if isTested, cells.last?.hasPrefix("---") == false {
        rows += 1
        let last = cells.last ?? ""
        #expect(!Self.names(in: last).isEmpty || last.contains("\""), "a row without a test: \(line)")
      }
    }
    #expect(rows > least, "only \(rows) rows have a column for tests")
  }
}

extension StringProtocol {
  fileprivate func trimming(while isGone: (Character) -> Bool) -> String {
    String(drop(while: isGone).reversed().drop(while: isGone).reversed())
  }
}
