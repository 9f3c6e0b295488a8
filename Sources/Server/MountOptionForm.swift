import Base
import Glibc
import Manifest
import Reading

/// The two written forms of an option's value: what a user may write, and the canonical form in the options file.
struct MountOptionForm<Value: Sendable>: Sendable {
  /// What a user may write, such as "a number of seconds from 1 to 86400"; the message about any other text shows it.
  let rule: String
  /// Parses what a user wrote; nil if it breaks the rule.
  let parse: @Sendable (String) throws(MountOptionError) -> Value?
  /// Parses the canonical form; nil if the text is not in it.
  let decode: @Sendable (String) -> Value?
  /// Writes the canonical form.
  let encode: @Sendable (Value) -> String
}

extension MountOptionForm where Value: LosslessStringConvertible {
  /// A value whose canonical form is its description.
  init(_ rule: String, parse: @escaping @Sendable (String) throws(MountOptionError) -> Value?) {
    self.init(rule: rule, parse: parse, decode: { Value($0) }, encode: { String($0) })
  }
}

extension MountOptionForm where Value: FixedWidthInteger & LosslessStringConvertible {
  /// An integer within bounds.
  static func number(_ bounds: ClosedRange<Value>) -> MountOptionForm {
    MountOptionForm("a number from \(bounds.lowerBound) to \(bounds.upperBound)") { text in
      Value(text).flatMap { bounds.contains($0) ? $0 : nil }
    }
  }
}

extension MountOptionForm<String> {
  /// Any text.
  static var text: MountOptionForm { MountOptionForm("text") { $0 } }

  /// The path of a file or folder. A user may write a relative path; the canonical form is absolute.
  static var path: MountOptionForm {
    MountOptionForm("a path") { text throws(MountOptionError) in
      if text.isEmpty { return nil }
      guard let path = AbsolutePath.of(text) else { throw .failed(AbsolutePath.folderIsGone) }
      return path
    }
  }
}

extension MountOptionForm<NamedList> {
  /// A path, a URL, or `-` for standard input; with `NAME=` before it for a folder of its own.
  static var list: MountOptionForm {
    MountOptionForm(
      rule: "a path, a URL or -, or NAME= and a path or URL",
      parse: { text throws(MountOptionError) in
        var list = NamedList(text)
        if !list.isNamedWell { return nil }
        let scheme = list.place.prefix(8).lowercased()
        for known in ["http://", "https://"] where scheme.hasPrefix(known) {
          list.place = known + list.place.dropFirst(known.count)
          return list
        }
        if list.place == "-" { return list }
        guard let path = try MountOptionForm<String>.path.parse(list.place) else { return nil }
        list.place = path
        return list
      },
      decode: { NamedList($0) },
      encode: { $0.folder.isEmpty ? $0.place : "\($0.folder)=\($0.place)" })
  }
}

extension MountOptionForm<[String]> {
  /// The word `complete` and a command, which is split into words. In the canonical form, the program is an absolute
  /// path, or a name without a slash.
  static var completionCommand: MountOptionForm {
    MountOptionForm(
      rule: "complete and a command",
      parse: { text throws(MountOptionError) in
        guard var words = try command(text) else { return nil }
        try findProgram(&words, of: MountOption.onComplete)
        return words
      },
      decode: { text in
        do throws(MountOptionError) {
          return try command(text).flatMap { $0.isEmpty ? nil : $0 }
        } catch {
          return nil  // the command that mounts has told what is wrong
        }
      },
      encode: { "complete " + CommandWords.joined($0) })
  }

  /// Makes the path of the program absolute.
  fileprivate static func findProgram(_ words: inout [String], of option: String) throws(MountOptionError) {
    guard let program = words.first, !program.isEmpty else {
      throw .usage("\(option) needs a command: a program, and its arguments")
    }
    if program.utf8.contains(UInt8(ascii: "/")) {
      guard let path = AbsolutePath.of(program) else { throw .failed(AbsolutePath.folderIsGone) }
      words[0] = path
    }
  }

  /// The words of the command; nil if it is for another event.
  private static func command(_ text: String) throws(MountOptionError) -> [String]? {
    let words = try CommandWords.split(text)
    return words.first == "complete" ? Array(words.dropFirst()) : nil
  }
}

extension MountOptionForm<String> {
  /// The name of a resolver.
  static var resolverName: MountOptionForm {
    MountOptionForm("a name of letters, digits, - and _") { ResolverName.isValid($0) ? $0 : nil }
  }
}

extension MountOptionForm<Resolver> {
  /// A name, an equals sign and a command, which is split into words.
  static var resolver: MountOptionForm {
    MountOptionForm(
      rule: "NAME=CMD, with a name of letters, digits, - and _",
      parse: { text throws(MountOptionError) in
        guard var resolver = try split(text) else { return nil }
        try MountOptionForm<[String]>.findProgram(&resolver.words, of: MountOption.resolver)
        return resolver
      },
      decode: { text in
        do throws(MountOptionError) {
          return try split(text).flatMap { $0.words.isEmpty ? nil : $0 }
        } catch {
          return nil  // the command that mounts has told what is wrong
        }
      },
      encode: { "\($0.name)=" + CommandWords.joined($0.words) })
  }

  private static func split(_ text: String) throws(MountOptionError) -> Resolver? {
    guard let equals = text.firstIndex(of: "="), ResolverName.isValid(String(text[..<equals])) else { return nil }
    return Resolver(
      name: String(text[..<equals]), words: try CommandWords.split(String(text[text.index(after: equals)...])))
  }
}

extension MountOptionForm<Double> {
  /// A time span.
  static func seconds(_ bounds: ClosedRange<Int>) -> MountOptionForm {
    MountOptionForm("a number of seconds from \(bounds.lowerBound) to \(bounds.upperBound)") { text in
      Double(text).flatMap { $0 >= Double(bounds.lowerBound) && $0 <= Double(bounds.upperBound) ? $0 : nil }
    }
  }
}

extension MountOptionForm<Double> {
  /// A time span with an optional unit, at most 1000 days. The canonical form is a number of seconds.
  static var duration: MountOptionForm {
    let units: [Character: Double] = ["s": 1, "m": 60, "h": 3600, "d": 86_400]
    return MountOptionForm("a time, such as 30s, 10m or 2h") { text in
      let unit = text.last.flatMap { units[$0] }
      let digits = unit == nil ? text[...] : text.dropLast()
      guard digits.allSatisfy({ $0.isASCII && ($0.isNumber || $0 == ".") }), let number = Double(digits) else {
        return nil
      }
      let seconds = number * (unit ?? 1)
      return seconds <= 1000 * 86_400 ? seconds : nil
    }
  }
}

extension MountOptionForm<Int64> {
  /// A number of bytes. The canonical form is a plain number.
  static func size(least: Int64 = 0) -> MountOptionForm {
    MountOptionForm("a size\(least > 0 ? " above 0" : ""), such as 500M or 1.5GiB") { text in
      ByteSize.parse(text).flatMap { $0 >= least ? $0 : nil }
    }
  }
}

extension MountOptionForm<UInt32> {
  /// A user or a group, by number or name. The canonical form is the number.
  static func owner(_ what: String, _ lookUp: @escaping @Sendable (String) -> UInt32?) -> MountOptionForm {
    MountOptionForm("the name or number of a \(what)") { text throws(MountOptionError) in
      if text.isEmpty { throw .usage("the name or number of a \(what) is missing") }
      if let number = UInt32(text) ?? lookUp(text) { return number }
      throw .failed("there is no \(what) \(text) on this machine")
    }
  }

  /// Permission bits, in octal. The canonical form is a decimal number.
  static var permissions: MountOptionForm {
    MountOptionForm("an octal number up to 777") { text in UInt32(text, radix: 8).flatMap { $0 <= 0o777 ? $0 : nil } }
  }
}

extension MountOptionForm where Value: RawRepresentable<String> & CaseIterable {
  /// The name of a policy.
  static var policy: MountOptionForm {
    let names = Value.allCases.map(\.rawValue)
    return MountOptionForm(
      rule: "one of \(names.joined(separator: ", "))", parse: { Value(rawValue: $0) },
      decode: { Value(rawValue: $0) }, encode: { $0.rawValue })
  }
}

extension MountOptionForm<ListFormat> {
  /// The name of a format of lists.
  static var listFormat: MountOptionForm {
    let names = ListFormat.allCases.map(\.rawValue)
    return MountOptionForm(
      rule: "one of \(names.joined(separator: ", "))", parse: { ListFormat(rawValue: $0) },
      decode: { ListFormat(rawValue: $0) }, encode: { $0.rawValue })
  }
}

extension MountOptionForm<HTTPHeader> {
  /// `Name: value`.
  static var header: MountOptionForm {
    MountOptionForm(
      rule: "'Name: value'",
      parse: { text throws(MountOptionError) in try HeaderText.parse(text, where: "--header") },
      decode: { text in
        do throws(MountOptionError) { return try HeaderText.parse(text, where: "") } catch { return nil }
      },
      encode: { "\($0.name): \($0.value)" })
  }
}
