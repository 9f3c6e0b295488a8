import Glibc

/// What the kernel that the tests run on can do.
package enum Kernel {
  /// Whether it can read complete files past the server (Linux 6.9), if that has the right.
  package static let hasPassthrough: Bool = {
    var name = utsname()
    guard uname(&name) == 0 else { return false }
    let release = withUnsafeBytes(of: &name.release) { String(decoding: $0.prefix { $0 != 0 }, as: UTF8.self) }
    let numbers = release.split(whereSeparator: { !$0.isNumber }).prefix(2).compactMap { Int($0) }
    return numbers.count == 2 && (numbers[0], numbers[1]) >= (6, 9)
  }()
}
