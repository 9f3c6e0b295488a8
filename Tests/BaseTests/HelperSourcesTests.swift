import TestSupport
import Testing

/// The mount helper may be root: who reads one of its files finds what that file needs below it, and nothing above.
@Suite("Sources of the mount helper")
struct HelperSourcesTests {
  /// A file and its header, of one name.
  private struct Part {
    var header = ""
    var code = ""
    /// The parts whose headers either of the two includes.
    var includes: Set<String> {
      Set("\(header)\n\(code)".matches(of: #/#include "(\w+)\.h"/#).map { String($0.1) })
    }
    /// The functions that the header declares.
    var functions: Set<String> { Set(header.matches(of: #/(\w+)\([^()]*\);/#).map { String($0.1) }) }
  }

  /// The parts by name, without their comments.
  private static func parts() throws -> [String: Part] {
    let folder = "\(DocumentTests.root)/mount-helper"
    var parts: [String: Part] = [:]
    for path in try Command.succeed(["find", folder, "-name", "*.[ch]"]).split(separator: "\n") {
      let file = path.split(separator: "/").last ?? ""
      let text = try DocumentTests.text("mount-helper/\(file)").replacing(#///[^\n]*/#, with: "")
      let name = String(file.dropLast(2))
      if file.hasSuffix(".h") {
        parts[name, default: Part()].header = text
      } else {
        parts[name, default: Part()].code = text
      }
    }
    try #require(parts.count > 5)
    return parts
  }

  @Test func noHeaderLeadsBackToItself() throws {
    let parts = try Self.parts()
    for name in parts.keys {
      var reached: Set<String> = []
      var next = parts[name]?.includes.subtracting([name]) ?? []
      while let one = next.popFirst() {
        guard reached.insert(one).inserted else { continue }
        next.formUnion(parts[one]?.includes.subtracting([one]) ?? [])
      }
      #expect(!reached.contains(name), "\(name) includes itself by way of \(reached.sorted())")
    }
  }

  /// What a header declares and another file than its own defines makes a circle that no include shows.
  @Test func aFunctionIsDefinedBesideItsHeader() throws {
    for (name, part) in try Self.parts() {
      for function in part.functions {
        let definition = try Regex("\\b\(function)\\([^()]*\\)\\s*\\{")
        #expect(part.code.contains(definition), "\(name).h declares \(function), which \(name).c does not define")
      }
    }
  }

  @Test func whoCallsAFunctionIncludesItsHeader() throws {
    let parts = try Self.parts()
    for (declarer, functions) in parts.mapValues(\.functions) {
      for function in functions {
        let call = try Regex("\\b\(function)\\(")
        for (name, part) in parts where name != declarer && part.code.contains(call) {
          #expect(part.includes.contains(declarer), "\(name).c calls \(function) and does not include \(declarer).h")
        }
      }
    }
  }
}
