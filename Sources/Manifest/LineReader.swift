import Base
import Glibc

/// Splits a file or a pipe into lines, with one buffer of fixed size.
///
/// A line ends with LF, or with the file. Of a line longer than ``maximumLength`` only the start is kept.
struct LineReader: ~Copyable {
  /// The most bytes of a line, without its LF. A signed URL has 1 to 2 KiB; a line may have several.
  static let maximumLength = 64 << 10
  /// How many bytes of a longer line are kept: enough to recognize the kind of line.
  static let keptOfLong = 64
  /// Room for several lines of the greatest length, so that there are few system calls.
  private static let bufferSize = 256 << 10

  /// The bytes that were read; ``range`` marks the line.
  private(set) var buffer: [UInt8]
  /// The line within ``buffer``, without its LF. Valid until the next ``advance()``.
  private(set) var range = 0..<0
  /// The line's number, from 1.
  private(set) var number = 0
  /// Whether the line was too long, so that only its start is there.
  private(set) var isTooLong = false

  private let descriptor: FileDescriptor  // kept open; read through `input`
  private let input: Int32
  private let disk: ListDisk?
  private var position = 0
  private var end = 0
  private var isAtEnd = false

  /// Reads lines from `descriptor` by read(2); it may be a pipe.
  init(_ descriptor: consuming FileDescriptor, disk: ListDisk? = nil) {
    input = descriptor.rawValue
    self.disk = disk
    self.descriptor = consume descriptor
    buffer = [UInt8](repeating: 0, count: Self.bufferSize)
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

  /// Calls `body` with the first bytes of the input, at most `count`. Only before the first ``advance()``.
  mutating func withHead<Result>(_ count: Int, _ body: (UnsafeRawBufferPointer) -> Result) throws(Errno) -> Result {
    while end < count, !isAtEnd { try fill() }
    let visible = min(count, end)
    return buffer.withUnsafeBytes { body(UnsafeRawBufferPointer(rebasing: $0[..<visible])) }
  }

  /// Removes and returns the next bytes as a range of ``buffer``; nil at the end. They are valid until the next call.
  /// Not to be mixed with ``advance()``.
  mutating func takePiece() throws(Errno) -> Range<Int>? {
    if position == end {
      (position, end) = (0, 0)
      if !isAtEnd { try fill() }
      if end == 0 { return nil }
    }
    defer { position = end }
    return position..<end
  }

  private mutating func setLine(upTo lineEnd: Int) {
    number += 1
    range = position..<lineEnd
    if range.count > Self.maximumLength {
      isTooLong = true
      range = position..<position + Self.keptOfLong
    }
  }

  /// Skips the rest of the line at `position`, which is too long; moves its start to the front of the buffer.
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
    // memchr is the fastest search; both pointers stay within the closure.
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

  /// Calls read(2) once, for the space behind `end`. There is space, because at most one line of the greatest length is
  /// kept.
  private mutating func fill() throws(Errno) {
    let (start, input, disk) = (end, input, disk)
    var failure: Errno?
    let count = disk.call {
      buffer.withUnsafeMutableBytes { bytes -> Int in
        let room = UnsafeMutableRawBufferPointer(rebasing: bytes[start...])
        do throws(Errno) { return try retrying { Glibc.read(input, room.baseAddress, room.count) } } catch {
          failure = error
          return 0
        }
      }
    }
    if let failure { throw failure }
    if count == 0 { isAtEnd = true }
    end += count
  }
}
