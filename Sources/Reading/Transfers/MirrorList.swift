import Fetching

/// The URLs of an entry, and which of them is asked. Pure.
struct MirrorList {
  struct Mirror {
    let url: String
    /// What it was redirected to the last time.
    var resolved: String?
    /// Why it cannot be used, for a person; nil while it can.
    var refusal: TransferFailure?
  }

  private var mirrors: [Mirror]
  /// The mirror that is asked.
  private(set) var current = 0
  /// The mirror that the current generation came from; nil before the first response of this mount.
  var ofGeneration: Int?

  init(_ urls: [String]) { mirrors = urls.map { Mirror(url: $0) } }

  var count: Int { mirrors.count }
  subscript(index: Int) -> Mirror {
    get { mirrors[index] }
    set { mirrors[index] = newValue }
  }

  /// The entry's own URL of the mirror that is asked.
  var url: String { mirrors[current].url }
  /// The URL to ask now.
  var target: (url: String, isResolved: Bool) {
    let mirror = mirrors[current]
    return mirror.resolved.map { ($0, true) } ?? (mirror.url, false)
  }

  /// Goes to the next mirror that was not refused; false when there is none.
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

  /// Goes to the mirror at `index`.
  mutating func go(to index: Int) { current = index }

  /// All of them are tried again.
  mutating func forgive() {
    for index in mirrors.indices { mirrors[index].refusal = nil }
  }
}
