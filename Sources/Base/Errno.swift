import Glibc

/// An error number of the operating system.
package struct Errno: Error, Hashable, Sendable, RawRepresentable, CustomStringConvertible {
  /// The number, as in <errno.h>.
  package let rawValue: Int32

  /// The error of that number.
  package init(rawValue: Int32) { self.rawValue = rawValue }

  /// The calling thread's `errno`: to be asked right behind the call that failed.
  package static var current: Errno { Errno(rawValue: errno) }

  /// The system's words for it.
  package var description: String {
    var text = [CChar](repeating: 0, count: 128)
    guard strerror_r(rawValue, &text, text.count) == 0 else { return "error \(rawValue)" }
    return String(decoding: text.prefix { $0 != 0 }.map { UInt8(bitPattern: $0) }, as: UTF8.self)
  }

  /// Input/output error.
  package static let io = Errno(rawValue: EIO)
  /// Permission denied.
  package static let accessDenied = Errno(rawValue: EACCES)
  /// The generation that was asked for is gone.
  package static let stale = Errno(rawValue: ESTALE)
  /// The deadline passed.
  package static let timedOut = Errno(rawValue: ETIMEDOUT)
  /// Written to a read-only filesystem.
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
  /// No space left on the disk.
  package static let noSpace = Errno(rawValue: ENOSPC)
  /// Over the quota.
  package static let quota = Errno(rawValue: EDQUOT)
  /// It exists already.
  package static let exists = Errno(rawValue: EEXIST)
  /// Invalid argument.
  package static let invalid = Errno(rawValue: EINVAL)
  /// Result too small for what is asked.
  package static let range = Errno(rawValue: ERANGE)

  /// Whether there is no space: on the disk, or in what the user may have of it.
  package var isFullDisk: Bool { self == .noSpace || self == .quota }
  /// Whether it speaks of the disk as a whole, not of the one file that met it.
  package var isOfDisk: Bool { isFullDisk || self == .io || self == .readOnly }
  /// Whether it speaks of what the process or the machine is short of at the moment: descriptors, memory.
  package var isPassing: Bool { rawValue == EMFILE || rawValue == ENFILE || rawValue == ENOMEM }
}
