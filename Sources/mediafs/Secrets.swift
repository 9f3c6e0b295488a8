import Base
import Glibc
import Server

/// Reads header fields from the command line, and hides them from the process list.
enum Secrets {
  /// The fields that a `--header` value names: `Name: value`, or `@FILE` with one such line each. No message shows a
  /// value.
  ///
  /// When root mounts for `user`, the command reads FILE with that user's rights. A symbolic link of that user's could
  /// otherwise lead to a file that only root may read, and the server would send its lines to that user's origin.
  static func headers(_ text: String, readBy user: String? = nil) throws(CommandError) -> [HTTPHeader] {
    guard text.hasPrefix("@") else { return [try header(text, where: "--header")] }
    let path = String(text.dropFirst())
    let bytes = try contents(path, readBy: user)
    var headers: [HTTPHeader] = []
    // Split by bytes: as a Character, CR LF is one character and equals no newline.
    let lines = bytes.split(separator: UInt8(ascii: "\n"), omittingEmptySubsequences: false)
    for (index, line) in lines.enumerated() {
      let text = line.last == UInt8(ascii: "\r") ? line.dropLast() : line
      if text.allSatisfy({ $0 == UInt8(ascii: " ") || $0 == UInt8(ascii: "\t") }) { continue }
      headers.append(try header(String(decoding: text, as: UTF8.self), where: "\(path), line \(index + 1)"))
    }
    return headers
  }

  private static func contents(_ path: String, readBy user: String?) throws(CommandError) -> [UInt8] {
    let limit = 1 << 20
    guard let user else {
      do throws(Errno) { return try Files.read(path, limit: limit) } catch {
        throw .failed("cannot read the header file \(path): \(error)")
      }
    }
    do throws(PlainFileError) { return try Files.read(path, limit: limit, as: user) } catch .kind(let kind) {
      throw .failed(
        "the header file \(path) is \(kind): with user=\(user), mediafs reads plain files only; "
          + "put the fields into a plain file")
    } catch {
      throw .failed("cannot read the header file \(path) as the user \(user), who the server runs as: \(error)")
    }
  }

  private static func header(_ text: String, where place: String) throws(CommandError) -> HTTPHeader {
    do throws(MountOptionError) { return try HeaderText.parse(text, where: place) } catch { throw CommandError(error) }
  }

  /// Overwrites header values and URLs in this process's argument memory, which `ps` shows to everyone. It covers
  /// `--header VALUE`, `--header=VALUE` (shortened too), and in `-o` everything from `header=` or `base-url=` on.
  static func hideArguments(_ values: [String]) {
    let hidden = values.filter { !$0.hasPrefix("@") }.map { Array($0.utf8) }
    for index in 0..<Int(CommandLine.argc) {
      guard let word = CommandLine.unsafeArgv[index] else { continue }
      hide(UnsafeMutableBufferPointer(start: word, count: strlen(word)), hidden)
    }
  }

  /// Overwrites the values in one argument.
  static func hide(_ word: UnsafeMutableBufferPointer<CChar>, _ values: [[UInt8]]) {
    let bytes = word.map { UInt8(bitPattern: $0) }
    var from = bytes.count
    for value in values where bytes.count >= value.count && bytes.suffix(value.count) == value[...] {
      from = min(from, bytes.count - value.count)
    }
    for name in ["header=", "base-url="].map({ Array($0.utf8) }) {
      guard let start = bytes.indices.first(where: { bytes[$0...].starts(with: name) }) else { continue }
      from = min(from, start + name.count)
    }
    for index in from..<bytes.count { word[index] = CChar(UInt8(ascii: "*")) }
  }
}
