/// One name of a server's directory.
package struct DirectoryEntry: Sendable, Equatable {
  /// Its name, decoded and made safe (``SafeName``). Other entries may have the same one: two names of the server can
  /// differ in what is not safe alone.
  package var name: String
  /// Its URL, on the listing's own host, directly below the listing. That of a folder ends with a slash.
  package var url: String
  package var isFolder: Bool
  /// The exact size in bytes; nil where the server rounds it, or does not say it. A folder has none.
  package var size: Int64?
  /// Seconds since 1970; nil where the server does not say it.
  package var modified: Int64?
  /// Whether ``modified`` is in UTC and has its seconds. Pages of nginx and Apache round it to the minute and may have
  /// it in the server's own time zone: it is read as UTC, and is good for a comparison with the same server's former
  /// answer.
  package var isModifiedExact = false
}

/// What a server's directory is written in.
package enum DirectoryKind: Sendable, Equatable {
  /// A page of links: nginx, Apache, Caddy, lighttpd, Python, WsgiDAV.
  case page
  /// JSON of nginx or Caddy.
  case objects
  /// XML of nginx.
  case elements
  /// WebDAV's answer to PROPFIND.
  case multistatus
}

/// What a listing has beside its entries: how often, and on which line first. Each kind is left out of the entries.
package struct DirectoryProblem: Sendable, Equatable {
  package enum Kind: Sendable, Equatable, CaseIterable {
    /// The listing itself, or a folder above it: every page has one such link. Followed, it would be a cycle.
    case itself, above
    /// Another view of a folder: `?C=N;O=D`.
    case sorting
    case otherHost
    /// A place of the host that is not below the listing.
    case elsewhere
    /// A place below a folder of the listing.
    case deeper
    /// A name that is no name: it is empty or dots, or has a slash or a NUL in it.
    case badName
    /// A name that is not UTF-8 where the server does not write its URL: the URL cannot be known.
    case unknownBytes
    /// No URL that can be fetched: `javascript:`, `mailto:`.
    case badURL
    /// A name that was there before.
    case duplicate
    /// A URL longer than ``DirectoryLimits/url``.
    case tooLong
    /// A folder below ``DirectoryLimits/depth`` folders: as good as always a cycle of links on the server's disk.
    case tooDeep
    /// An item that is broken, or neither a file nor a folder.
    case badItem
    /// An item to which the server gives an error of its own.
    case refused
  }

  package var kind: Kind
  package var count: Int
  /// The line of the first one, from 1.
  package var line: Int

  /// Whether every good listing may have it, so that it is no reason for a message.
  package var isUsual: Bool { kind == .itself || kind == .above || kind == .sorting || kind == .otherHost }
}

/// Why a listing cannot be read, or not to its end. Entries that were handed over before are not all: whoever has them
/// from an earlier answer keeps those.
package enum DirectoryFault: Error, Equatable, Sendable {
  /// The listing's URL is no http or https URL.
  case badURL
  /// The answer is of that media type: a file, not a listing.
  case file(mediaType: String)
  /// It is a page or a document, and no listing.
  case notAListing(reason: String)
  /// It ends before its end.
  case cut
  /// It breaks its format's rules.
  case malformed(line: Int, reason: String)
  /// It has more names than ``DirectoryLimits/names``, or more bytes than ``DirectoryLimits/bytes``.
  case tooMany
}

extension DirectoryFault: CustomStringConvertible {
  /// What is wrong, without any part of the answer.
  package var description: String {
    switch self {
    case .badURL: "the folder's URL is not an http or https URL"
    case .file: "this is a file, not a listing of a folder"
    case .notAListing(let reason): "this is no listing of a folder: \(reason)"
    case .cut: "the listing ends before its end"
    case .malformed(let line, let reason): "line \(line) of the listing: \(reason)"
    case .tooMany:
      "the listing has more than \(DirectoryLimits.names) names, or more than \(DirectoryLimits.bytes >> 20) MiB"
    }
  }
}

/// The bounds of a listing.
package enum DirectoryLimits {
  /// The most names. A hash of each is kept, to find duplicates.
  package static let names = 1 << 18
  package static let bytes = 256 << 20
  /// The most bytes of a URL. A longer one is no server's name of 255 bytes, escaped.
  package static let url = 8 << 10
  /// The most folders below the one that the user named.
  package static let depth = 32
}
