import Base

/// The paths and patterns of one request, each of them once. Pure.
package struct PathPatterns: Sendable {
  /// All of them, in the order of the request.
  package private(set) var all: [PathPattern] = []
  /// How many of them have wildcards.
  package var wildCount: Int { wild.count }
  /// Where each path is in `all`: by its bytes, as in ``Rules``.
  private var paths: [[UInt8]: Int] = [:]
  /// Where the others are.
  private var wild: [Int] = []
  /// Whether each was for a path that ``meet(_:)`` got.
  private var isMet: [Bool] = []

  /// None.
  package init() {}

  /// Adds one, unless it is there.
  package mutating func add(_ pattern: PathPattern) {
    if let path = pattern.path {
      if paths[Array(path.utf8)] != nil { return }
      paths[Array(path.utf8)] = all.count
    } else {
      if wild.contains(where: { all[$0].hasText(of: pattern) }) { return }
      wild.append(all.count)
    }
    all.append(pattern)
    isMet.append(false)
  }

  /// Whether one of them is for the entry at `path`; remembers which.
  package mutating func meet(_ path: String) -> Bool {
    let names = path.utf8.split(separator: UInt8(ascii: "/"))
    var isFound = false
    if !paths.isEmpty {
      forEachPath(to: names) { path in
        guard let index = paths[path] else { return }
        isMet[index] = true
        isFound = true
      }
    }
    if wild.isEmpty { return isFound }
    let parts = names.map { Substring($0) }
    for index in wild where !isFound || !isMet[index] {
      guard all[index].matches(parts) else { continue }
      isMet[index] = true
      isFound = true
    }
    return isFound
  }

  /// Those that were for no path that ``meet(_:)`` got.
  package var unmet: [PathPattern] { zip(all, isMet).filter { !$0.1 }.map(\.0) }

  /// The folders below which all lies that one of them may be for: none lies in another.
  package var folders: [String] { Self.folders(of: all) }

  static func folders(of patterns: some Sequence<PathPattern>) -> [String] {
    let folders = Set(patterns.map { Array($0.folder.utf8) })
    let outer = folders.filter { folder in
      if folder.isEmpty { return true }
      if folders.contains([]) { return false }
      return !folder.indices.contains { folder[$0] == UInt8(ascii: "/") && folders.contains(Array(folder[..<$0])) }
    }
    return outer.map { String(decoding: $0, as: UTF8.self) }.sorted()
  }
}

/// Calls `body` with the path of the root, and of each folder on the way to the entry at `names`, and with its own.
func forEachPath(to names: some Sequence<Substring.UTF8View>, _ body: ([UInt8]) -> Void) {
  var path: [UInt8] = []
  body(path)
  for name in names {
    if !path.isEmpty { path.append(UInt8(ascii: "/")) }
    path += name
    body(path)
  }
}
