import Base

/// Why a whole manifest cannot be read. (A ``ManifestProblem`` is about one line.)
package enum ManifestError: Error, Equatable, Sendable {
  /// There is no file at that path.
  case notFound(path: String)
  /// The path leads to a folder.
  case isFolder(path: String)
  /// The path leads to no folder, and the format is one of folders.
  case notAFolder(path: String)
  /// This user may not read the file.
  case permissionDenied(path: String)
  /// Opening or reading failed in another way.
  case unreadable(name: String, reason: Errno)
  /// Its disk does not answer.
  case silent(name: String)
  /// It is text in UTF-16, not in UTF-8.
  case notUTF8(name: String)
  /// It is a file of another type, by its first bytes; `what` is that type's extension.
  case notAList(name: String, what: String)
  /// It is an HLS playlist: pieces of one stream, not a list of files.
  case streamPlaylist(name: String, line: Int)
  /// It breaks the rules of its format, so that its rest cannot be read.
  case malformed(name: String, format: String, line: Int, reason: String)
  /// A list gives nothing: all that it gave before would go.
  case empty(name: String, format: ListFormat?)
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
      "manifest \(path): this is a folder; give a file of that format"
    case .notAFolder(let path):
      "manifest \(path): this is no folder; the format strm is a folder of .strm files"
    case .permissionDenied(let path):
      "manifest \(path): permission denied; make the file readable for the user that runs this"
    case .unreadable(let name, let reason):
      "manifest \(name): cannot be read: \(reason)"
    case .silent(let name):
      "the list \(name) cannot be read: its disk does not answer"
    case .notUTF8(let name):
      "manifest \(name): this is UTF-16 text; save it as UTF-8"
    case .notAList(let name, let what):
      "manifest \(name): its first line begins a file of type \(what), not a list of a format that mediafs reads; "
        + "give a text file with one URL a line, or say its format (--format)"
    case .streamPlaylist(let name, let line):
      "manifest \(name), line \(line): this is an HLS stream's playlist: its lines are pieces of one stream, "
        + "not files; play its URL directly, or list files"
    case .malformed(let name, let format, let line, let reason):
      "manifest \(name), line \(line): this \(format) cannot be read: \(reason)"
    case .empty(let name, let format):
      "manifest \(name): \(format.map { "this \($0.title)" } ?? "it") has no usable line, and nothing was changed "
        + "(mediafs check FILE lists the problems)"
    case .badBase(let reason):
      "base URL: \(reason)"
    }
  }
}

/// A problem with one line.
package struct ManifestProblem: Sendable, Equatable {
  /// What the problem means for the line.
  package enum Severity: Sendable, Equatable {
    /// The line is used, perhaps without a part.
    case warning
    /// The line is skipped: either a whole entry, or one option, without which its entry is listed.
    case error
  }

  /// The line's number, from 1.
  package var line: Int
  /// What the problem means for the line.
  package var severity: Severity
  /// What is wrong and what to do. It holds no secret: no URL, header value or option value.
  package var message: String

  /// What the list is read as; nil: it is no fault of a line.
  package var format: ListFormat?
  /// The message, and the format that was recognized: it may be another one than the reader of the message means.
  package var text: String { format.map { "\(message) (\($0.title))" } ?? message }

  /// The name of its list, if that shows in a folder of its own; nil: the list at the top, or the only one.
  package var list: String?

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

/// An item of a manifest.
package enum ManifestItem: Sendable, Equatable {
  /// An entry. Boxed: several readers hand it on, and each copy would retain all of its fields.
  indirect case entry(ManifestEntry)
  /// A folder that shows a server's.
  case folder(ManifestFolder)
  /// A problem.
  case problem(ManifestProblem)

  /// Whether it is an entry whose URL ends as those of servers' folders do.
  var hasFolderURL: Bool {
    guard case .entry(let entry) = self else { return false }
    return entry.urls.first?.utf8.last == 0x2F
  }

  /// Whether it is an entry whose links a resolver gives.
  var hasResolver: Bool {
    guard case .entry(let entry) = self else { return false }
    return entry.resolver != nil
  }
}
