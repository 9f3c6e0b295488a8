import Base
import Glibc

/// Cuts a file, a pipe or bytes in memory into lines, in one buffer of fixed size.
///
/// A line ends with LF, or with the file. What is longer than ``maximumLength`` is read over, of which only the start
/// is kept.
struct LineReader: ~Copyable {
  /// How many bytes a line may have, its end not counted. Signed URLs have 1 to 2 KiB; a line may have several.
  static let maximumLength = 64 << 10
  /// How much of a longer line is kept: enough to see what kind of line it is.
  static let keptOfLong = 64
  /// Several lines of the greatest length, and few system calls.
  private static let bufferSize = 256 << 10

  /// The bytes read; ``range`` of it is the line.
  private(set) var buffer: [UInt8]
  /// Where the line is, without its LF. Valid until the next ``advance()``.
  private(set) var range = 0..<0
  /// The line's number, from 1.
  private(set) var number = 0
  /// Whether it was too long, so that only its start is there.
  private(set) var isTooLong = false

  private let descriptor: FileDescriptor?  // kept open; read through `input`
  private let input: Int32?
  private var position = 0
  private var end: Int
  private var isAtEnd: Bool

  /// Lines of `descriptor`, which is read with read(2), so it may be a pipe.
  init(_ descriptor: consuming FileDescriptor) {
    input = descriptor.rawValue
    self.descriptor = consume descriptor
    buffer = [UInt8](repeating: 0, count: Self.bufferSize)
    end = 0
    isAtEnd = false
  }

  /// Lines of `bytes`.
  init(_ bytes: [UInt8]) {
    descriptor = nil
    input = nil
    buffer = bytes
    end = bytes.count
    isAtEnd = true
  }

  /// Goes to the next line; false at the end.
  mutating func advance() throws(Errno) -> Bool {
    isTooLong = false
    var scanned = position
    while true {
      if let newline = newline(from: scanned) {
        setLine(upTo: newline)
        position = newline + 1
        return true
      }
      if isAtEnd {
        if position == end { return false }
        setLine(upTo: end)
        position = end
        return true
      }
      if end - position > Self.maximumLength { return try skipLongLine() }
      scanned = end - position
      moveRestToFront()
      try fill()
    }
  }

  /// The first up to `count` bytes of the input, without going on; to be asked before the first line.
  mutating func withHead<Result>(_ count: Int, _ body: (UnsafeRawBufferPointer) -> Result) throws(Errno) -> Result {
    while end < count, !isAtEnd { try fill() }
    let visible = min(count, end)
    return buffer.withUnsafeBytes { body(UnsafeRawBufferPointer(rebasing: $0[..<visible])) }
  }

  private mutating func setLine(upTo lineEnd: Int) {
    number += 1
    range = position..<lineEnd
    if range.count > Self.maximumLength {
      isTooLong = true
      range = position..<position + Self.keptOfLong
    }
  }

  /// Reads over the line at `position`, which fills more than its share of the buffer; its start goes to the front.
  private mutating func skipLongLine() throws(Errno) -> Bool {
    number += 1
    isTooLong = true
    buffer.replaceSubrange(0..<Self.keptOfLong, with: Array(buffer[position..<position + Self.keptOfLong]))
    range = 0..<Self.keptOfLong
    while true {
      position = Self.keptOfLong
      end = Self.keptOfLong
      try fill()
      if let newline = newline(from: position) {
        position = newline + 1
        return true
      }
      if isAtEnd {
        position = end
        return true
      }
    }
  }

  private func newline(from start: Int) -> Int? {
    // memchr is the fastest search there is; both pointers stay within the closure.
    buffer.withUnsafeBytes { bytes in
      guard start < end, let base = bytes.baseAddress else { return nil }
      guard let found = memchr(base + start, 0x0A, end - start) else { return nil }
      return UnsafeRawPointer(found) - base
    }
  }

  private mutating func moveRestToFront() {
    guard position > 0 else { return }
    let (from, count) = (position, end - position)
    buffer.withUnsafeMutableBytes { bytes in
      // memmove allows the overlap; both lie within the buffer.
      guard let base = bytes.baseAddress else { return }
      memmove(base, base + from, count)
    }
    position = 0
    end = count
  }

  /// One read(2) behind `end`; there is room, as a rest is at most a line of the greatest length.
  private mutating func fill() throws(Errno) {
    guard let input else {
      isAtEnd = true
      return
    }
    let start = end
    var failure: Errno?
    let count = buffer.withUnsafeMutableBytes { bytes -> Int in
      let room = UnsafeMutableRawBufferPointer(rebasing: bytes[start...])
      do throws(Errno) { return try retrying { Glibc.read(input, room.baseAddress, room.count) } } catch {
        failure = error
        return 0
      }
    }
    if let failure { throw failure }
    if count == 0 { isAtEnd = true }
    end += count
  }
}
