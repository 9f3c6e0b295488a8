import Base

/// Why a manifest as a whole cannot be read. (What is wrong with one line is a ``ManifestProblem``.)
package enum ManifestError: Error, Equatable, Sendable {
  /// No file of that path.
  case notFound(path: String)
  /// The path is a folder's.
  case isFolder(path: String)
  /// The file may not be read by this user.
  case permissionDenied(path: String)
  /// Opening or reading failed in another way.
  case unreadable(name: String, reason: Errno)
  /// It is not text in UTF-8 but in UTF-16.
  case notUTF8(name: String)
  /// It is a file of another kind, known by its first bytes; `what` is that kind's extension.
  case notAList(name: String, what: String)
  /// It is an HLS playlist: pieces of one stream, not a list of files.
  case streamPlaylist(name: String, line: Int)
  /// The base for relative URLs is not an absolute http or https URL.
  case badBase(reason: String)
}

extension ManifestError: CustomStringConvertible {
  /// What failed, why, and what to do.
  package var description: String {
    switch self {
    case .notFound(let path):
      "manifest \(path): there is no such file"
    case .isFolder(let path):
      "manifest \(path): this is a folder; give a text file with one URL a line"
    case .permissionDenied(let path):
      "manifest \(path): permission denied; make the file readable for the user that runs this"
    case .unreadable(let name, let reason):
      "manifest \(name): cannot be read: \(reason)"
    case .notUTF8(let name):
      "manifest \(name): this is UTF-16 text; save it as UTF-8"
    case .notAList(let name, let what):
      "manifest \(name): this is a file of type \(what), not a list; give a text file with one URL a line"
    case .streamPlaylist(let name, let line):
      "manifest \(name), line \(line): this is an HLS stream's playlist: its lines are pieces of one stream, "
        + "not files; play its URL directly, or list files"
    case .badBase(let reason):
      "base URL: \(reason)"
    }
  }
}

/// What is wrong with one line.
package struct ManifestProblem: Sendable, Equatable {
  /// How bad it is.
  package enum Severity: Sendable, Equatable {
    /// The line is used all the same, or only a part of it is not.
    case warning
    /// The line is skipped: an entry, or one option of an entry that is listed without it.
    case error
  }

  /// The line's number, from 1.
  package var line: Int
  /// How bad it is.
  package var severity: Severity
  /// What is wrong and what to do; no secret (no URL, header value or option value) is in it.
  package var message: String

  /// The problem `message` on `line`.
  package init(line: Int, severity: Severity, message: String) {
    self.line = line
    self.severity = severity
    self.message = message
  }
}

extension ManifestProblem: CustomStringConvertible {
  /// `line 7: error: …`.
  package var description: String { "line \(line): \(severity == .error ? "error" : "warning"): \(message)" }
}

/// One thing found in a manifest.
package enum ManifestItem: Sendable, Equatable {
  /// An entry.
  case entry(ManifestEntry)
  /// Something wrong.
  case problem(ManifestProblem)
}
