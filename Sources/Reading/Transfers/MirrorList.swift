import Base
import Fetching
import Manifest

/// The URLs that an entry is requested by, and which of them is. Pure.
///
/// Each has a place, which stays its own: where others replaced it, a transfer that it has still in flight is told from
/// theirs.
struct MirrorList {
  struct Mirror {
    let url: String
    /// The target of its last redirect, if that led to the file.
    var resolved: String? { didSet { host = Line.key(of: resolved ?? url) } }
    /// The key of the line to the URL that is requested. It is asked for often.
    private(set) var host: String
    /// Why the mirror refused for good; nil while it may be tried.
    var refusal: TransferFailure?
    /// The time before which it is not to be requested (Retry-After); nil: it named none.
    var notBefore: Instant?

    init(url: String) {
      self.url = url
      host = Line.key(of: url)
    }
  }

  private var mirrors: [Mirror]
  /// The place of the first one.
  private var first = 0
  /// The place of the mirror that is requested.
  private(set) var current = 0
  /// The place of the mirror that the current generation came from; nil: nobody knows yet.
  var ofGeneration: Int?

  init(_ urls: [String]) { mirrors = urls.map { Mirror(url: $0) } }

  /// The version whose bytes are stored came from the URL with the key `mirror`: that one is requested.
  mutating func came(from mirror: ResourceKey) {
    guard let index = mirrors.firstIndex(where: { ResourceKey(url: $0.url) == mirror }) else { return }
    (ofGeneration, current) = (first + index, first + index)
  }

  /// The key by which the catalog remembers the mirror at `place`; nil: the entry has no other one, or it was replaced.
  func key(of place: Int) -> ResourceKey? {
    mirrors.count > 1 && !isReplaced(place) ? ResourceKey(url: self[place].url) : nil
  }

  /// Takes `urls` in the place of all that it has.
  mutating func replace(by urls: [String]) {
    first += mirrors.count
    current = first
    mirrors = urls.map { Mirror(url: $0) }
  }

  /// Takes the URLs that its entry has in the list now. What is known of a URL that it had before stays.
  mutating func relist(_ urls: [String]) {
    let former = self
    replace(by: urls)
    for index in mirrors.indices {
      mirrors[index].resolved = former.mirrors.first { $0.url == mirrors[index].url }?.resolved
    }
    ofGeneration = former.ofGeneration.flatMap { place in
      former.isReplaced(place) ? nil : urls.firstIndex(of: former[place].url).map { first + $0 }
    }
    if let ofGeneration { current = ofGeneration }
  }

  var count: Int { mirrors.count }
  var places: Range<Int> { first..<first + mirrors.count }
  /// Whether the mirror at `place` was replaced.
  func isReplaced(_ place: Int) -> Bool { place < first }
  /// Which of the mirrors is requested, from 0.
  var index: Int { current - first }

  subscript(place: Int) -> Mirror {
    get { isReplaced(place) ? Mirror(url: "") : mirrors[place - first] }
    set { if !isReplaced(place) { mirrors[place - first] = newValue } }
  }

  /// The key of the line to the current mirror.
  var host: String { self[current].host }
  /// The entry's own URL of the current mirror.
  var url: String { self[current].url }
  /// The URL to request now: the remembered target of a redirect, or the entry's own.
  var target: (url: String, isResolved: Bool) {
    let mirror = self[current]
    return mirror.resolved.map { ($0, true) } ?? (mirror.url, false)
  }

  /// Why mirrors were given up, in their order; empty while none was.
  var refusals: [String?] {
    mirrors.contains { $0.refusal != nil } ? mirrors.map { $0.refusal?.message } : []
  }

  /// Whether the mirror at `place` named a time that is to come.
  func asksToWait(_ place: Int, _ now: Instant) -> Bool { self[place].notBefore.map { $0 > now } ?? false }

  /// Changes to the next mirror that has not refused; false when there is none. Those that named a time are left out
  /// until then. If all did, it is the one whose time comes first.
  mutating func next(_ now: Instant) -> Bool {
    let others = (1...mirrors.count).map { first + (index + $0) % mirrors.count }.filter { self[$0].refusal == nil }
    let free = others.first { !asksToWait($0, now) }
    let earliest = others.min { (self[$0].notBefore ?? now) < (self[$1].notBefore ?? now) }
    guard let next = free ?? earliest else { return false }
    current = next
    return true
  }

  /// Changes to the mirror at `place`.
  mutating func go(to place: Int) { current = place }

  /// Forgets all refusals.
  mutating func forgive() {
    for index in mirrors.indices { mirrors[index].refusal = nil }
  }
}
