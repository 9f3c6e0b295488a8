import Fetching

/// The URLs of an entry, and which of them is requested. Pure.
struct MirrorList {
  struct Mirror {
    let url: String
    /// The target of its last redirect.
    var resolved: String?
    /// Why the mirror refused for good; nil while it may be tried.
    var refusal: TransferFailure?
  }

  private var mirrors: [Mirror]
  /// The index of the mirror that is requested.
  private(set) var current = 0
  /// The index of the mirror that the current generation came from; nil before the first response of this mount.
  var ofGeneration: Int?

  init(_ urls: [String]) { mirrors = urls.map { Mirror(url: $0) } }

  var count: Int { mirrors.count }
  subscript(index: Int) -> Mirror {
    get { mirrors[index] }
    set { mirrors[index] = newValue }
  }

  /// The entry's own URL of the current mirror.
  var url: String { mirrors[current].url }
  /// The URL to request now: the remembered target of a redirect, or the entry's own.
  var target: (url: String, isResolved: Bool) {
    let mirror = mirrors[current]
    return mirror.resolved.map { ($0, true) } ?? (mirror.url, false)
  }

  /// Why mirrors were given up, by their places; empty while none was.
  var refusals: [String?] {
    mirrors.contains { $0.refusal != nil } ? mirrors.map { $0.refusal?.message } : []
  }

  /// Changes to the next mirror that has not refused; false when there is none.
  mutating func next() -> Bool {
    for step in 1...mirrors.count {
      let next = (current + step) % mirrors.count
      if mirrors[next].refusal == nil {
        current = next
        return true
      }
    }
    return false
  }

  /// Changes to the mirror at `index`.
  mutating func go(to index: Int) { current = index }

  /// Forgets all refusals.
  mutating func forgive() {
    for index in mirrors.indices { mirrors[index].refusal = nil }
  }
}
