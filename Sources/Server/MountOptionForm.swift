import Base
import Glibc
import Reading

/// How the value of an option is written: by a user, and in the options file, where it has one canonical form.
struct MountOptionForm<Value: Sendable>: Sendable {
  /// What a user may write, for the message about anything else: "a number of seconds from 1 to 86400".
  let rule: String
  /// Reads what a user wrote; nil when it breaks the rule.
  let parse: @Sendable (String) throws(MountOptionError) -> Value?
  /// Reads the canonical form; nil when it is not that.
  let decode: @Sendable (String) -> Value?
  /// Writes the canonical form.
  let encode: @Sendable (Value) -> String
}

extension MountOptionForm where Value: LosslessStringConvertible {
  /// Its canonical form is the value's own text.
  init(_ rule: String, parse: @escaping @Sendable (String) throws(MountOptionError) -> Value?) {
    self.init(rule: rule, parse: parse, decode: { Value($0) }, encode: { String($0) })
  }
}

extension MountOptionForm where Value: FixedWidthInteger & LosslessStringConvertible {
  /// A whole number within bounds.
  static func number(_ bounds: ClosedRange<Value>) -> MountOptionForm {
    MountOptionForm("a number from \(bounds.lowerBound) to \(bounds.upperBound)") { text in
      Value(text).flatMap { bounds.contains($0) ? $0 : nil }
    }
  }
}

extension MountOptionForm<String> {
  /// Any text.
  static var text: MountOptionForm { MountOptionForm("text") { $0 } }

  /// A file or a folder: relative to the current folder, canonical with that in front.
  static var path: MountOptionForm {
    MountOptionForm("a path") { text throws(MountOptionError) in
      guard let path = AbsolutePath.of(text) else { throw .failed(AbsolutePath.folderIsGone) }
      return path
    }
  }

  /// As ``path``, or `-` for standard input.
  static var pathOrInput: MountOptionForm {
    MountOptionForm("a path, or -") { text throws(MountOptionError) in text == "-" ? text : try path.parse(text) }
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

extension MountOptionForm<Int64> {
  /// A number of bytes; canonical as a plain number.
  static func size(least: Int64 = 0) -> MountOptionForm {
    MountOptionForm("a size\(least > 0 ? " above 0" : ""), such as 500M or 1.5GiB") { text in
      ByteSize.parse(text).flatMap { $0 >= least ? $0 : nil }
    }
  }
}

extension MountOptionForm<UInt32> {
  /// A user or a group by number or name; canonical as a number.
  static func owner(_ what: String, _ lookUp: @escaping @Sendable (String) -> UInt32?) -> MountOptionForm {
    MountOptionForm("the name or number of a \(what)") { text throws(MountOptionError) in
      if text.isEmpty { throw .usage("the name or number of a \(what) is missing") }
      if let number = UInt32(text) ?? lookUp(text) { return number }
      throw .failed("there is no \(what) \(text) on this machine")
    }
  }

  /// Permission bits, in octal; canonical as a decimal number.
  static var permissions: MountOptionForm {
    MountOptionForm("an octal number up to 777") { text in UInt32(text, radix: 8).flatMap { $0 <= 0o777 ? $0 : nil } }
  }
}

extension MountOptionForm<ContinuationPolicy> {
  /// One of the policies by its name.
  static var policy: MountOptionForm {
    let names = ContinuationPolicy.allCases.map(\.rawValue)
    return MountOptionForm(
      rule: "one of \(names.joined(separator: ", "))", parse: { ContinuationPolicy(rawValue: $0) },
      decode: { ContinuationPolicy(rawValue: $0) }, encode: { $0.rawValue })
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
