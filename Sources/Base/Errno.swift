import Glibc

/// An error number of the operating system.
package struct Errno: Error, Hashable, Sendable, RawRepresentable, CustomStringConvertible {
  /// The number, as in <errno.h>.
  package let rawValue: Int32

  /// The error of that number.
  package init(rawValue: Int32) { self.rawValue = rawValue }

  /// The calling thread's `errno`. Read it right after the failed call.
  package static var current: Errno { Errno(rawValue: errno) }

  /// The system's description of the error.
  package var description: String {
    var text = [CChar](repeating: 0, count: 128)
    guard strerror_r(rawValue, &text, text.count) == 0 else { return "error \(rawValue)" }
    return String(decoding: text.prefix { $0 != 0 }.map { UInt8(bitPattern: $0) }, as: UTF8.self)
  }

  /// Input/output error.
  package static let io = Errno(rawValue: EIO)
  /// Permission denied.
  package static let accessDenied = Errno(rawValue: EACCES)
  /// The generation of the request is gone.
  package static let stale = Errno(rawValue: ESTALE)
  /// A timeout expired.
  package static let timedOut = Errno(rawValue: ETIMEDOUT)
  /// A write to a read-only filesystem.
  package static let readOnly = Errno(rawValue: EROFS)
  /// No such entry.
  package static let notFound = Errno(rawValue: ENOENT)
  /// Not a directory.
  package static let notDirectory = Errno(rawValue: ENOTDIR)
  /// Is a directory.
  package static let isDirectory = Errno(rawValue: EISDIR)
  /// No such attribute.
  package static let noData = Errno(rawValue: ENODATA)
  /// Interrupted.
  package static let interrupted = Errno(rawValue: EINTR)
  /// Not enough memory.
  package static let noMemory = Errno(rawValue: ENOMEM)
  /// Too many files are open.
  package static let tooManyFiles = Errno(rawValue: ENFILE)
  /// No space left on the disk.
  package static let noSpace = Errno(rawValue: ENOSPC)
  /// Over the quota.
  package static let quota = Errno(rawValue: EDQUOT)
  /// It exists already.
  package static let exists = Errno(rawValue: EEXIST)
  /// Invalid argument.
  package static let invalid = Errno(rawValue: EINVAL)
  /// The buffer is too small for the result.
  package static let range = Errno(rawValue: ERANGE)

  /// Whether there is no space: on the disk, or in the user's quota.
  package var isFullDisk: Bool { self == .noSpace || self == .quota }
  /// Whether the error is about the whole disk, not only about the file that met it.
  package var isOfDisk: Bool { isFullDisk || self == .io || self == .readOnly }
  /// Whether the process or the machine lacks descriptors or memory at the moment.
  package var isPassing: Bool { rawValue == EMFILE || rawValue == ENFILE || rawValue == ENOMEM }
}
