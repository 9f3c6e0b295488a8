import CSystem
import Glibc

/// What stands beside a name on a page: its date and its size.
struct DirectoryColumns {
  /// What stands behind the link, where there are no cells.
  private var text: [UInt8] = []
  private var cells: [(text: [UInt8], exactSize: String?)] = []
  /// The date of a `<time>`, which has all of it.
  private var date: Int64?

  /// A cell of a table begins; Caddy gives the exact size beside what it shows.
  mutating func beginCell(_ exactSize: String?) {
    // The servers have five columns; an open cell of a page that never ends gets no more.
    if cells.count < 16 { cells.append(([], exactSize)) }
  }

  mutating func append(_ bytes: UnsafeBufferPointer<UInt8>, limit: Int) {
    if cells.isEmpty {
      text.append(contentsOf: bytes.prefix(limit - text.count))
    } else {
      cells[cells.count - 1].text.append(contentsOf: bytes.prefix(limit - cells[cells.count - 1].text.count))
    }
  }

  mutating func note(date text: String) {
    date = ListDate(String(Self.words(text)))?.seconds
  }

  /// Gives the entry what the columns say.
  func complete(_ entry: inout DirectoryEntry) {
    var form: DateForm?
    var sizes: [(text: String, exact: String?)] = []
    if cells.isEmpty {
      let line = Self.words(String(decoding: text.prefix { $0 != 0x0A }, as: UTF8.self))
      if let found = Self.date(line) {
        (form, entry.modified) = (found.form, found.seconds)
        // Apache's description may follow.
        if let first = found.rest.split(separator: " ").first { sizes = [(String(first), nil)] }
      }
    } else {
      for cell in cells {
        let line = Self.words(String(decoding: cell.text, as: UTF8.self))
        if form == nil, let found = Self.date(line) {
          (form, entry.modified) = (found.form, found.seconds)
        } else {
          sizes.append((line, cell.exactSize))
        }
      }
    }
    entry.isModifiedExact = form == .http
    if let date { (entry.modified, entry.isModifiedExact) = (date, true) }
    if entry.isFolder { return }
    // The first column that can be a size is it: a description may follow, and be a number.
    let size = sizes.first { $0.exact != nil || Self.isSize($0.text) }
    if let size { entry.size = Self.exactSize(size.exact ?? size.text, form) }
  }

  private enum DateForm: CaseIterable {
    case nginx, apache, lighttpd, http

    /// As strptime(3) writes it. The program stays in the C locale, so the months are English.
    var text: String {
      switch self {
      case .nginx: "%d-%b-%Y %H:%M"
      case .apache: "%Y-%m-%d %H:%M"
      case .lighttpd: "%Y-%b-%d %H:%M:%S"
      case .http: "%a, %d %b %Y %H:%M:%S GMT"
      }
    }
  }

  /// The date with which `text` begins.
  private static func date(_ text: String) -> (form: DateForm, seconds: Int64, rest: String)? {
    // Before strptime sees it: most columns are no dates.
    guard text.utf8.count >= 16 else { return nil }
    for form in DateForm.allCases {
      var fields = tm()
      guard let rest = ListDate.parse(text, form.text, &fields), (0...8099).contains(fields.tm_year) else { continue }
      // timegm reads the fields as UTC.
      return (form, Int64(timegm(&fields)), String(rest))
    }
    return nil
  }

  /// Whether a column can be a size, rounded or not, or the dash of a folder.
  private static func isSize(_ text: String) -> Bool {
    let first = text.utf8.first ?? 0
    // WsgiDAV calls a file `x.5K` a `5K-File`.
    return first == 0x2D || first.isDigit && !text.utf8.contains(0x2D)
  }

  /// A number of bytes in full; nil for a rounded one. Apache writes those below 973 in full, so that a longer number
  /// behind its date is a description.
  private static func exactSize(_ text: String, _ form: DateForm?) -> Int64? {
    var digits = text
    for unit in [" Bytes", " Byte"] where digits.hasSuffix(unit) {
      digits = digits.dropLast(unit.count).filter { $0 != "," }
    }
    guard !digits.isEmpty, digits.utf8.count <= (form == .apache ? 3 : 18), digits.utf8.allSatisfy(\.isDigit) else {
      return nil
    }
    return Int64(digits)
  }

  /// The words of `text`, each behind one blank; no-break spaces count as white space.
  private static func words(_ text: String) -> String {
    text.split(whereSeparator: \.isWhitespace).joined(separator: " ")
  }
}
