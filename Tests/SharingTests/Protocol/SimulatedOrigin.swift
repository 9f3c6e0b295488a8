/// An origin of limited rate that all fetches under way share alike, in virtual time.
struct SimulatedOrigin {
  /// A part of a fetch: when it is here, the node is told.
  struct Fetch: Hashable {
    var node: Int
    var life: Int
    var block: Int
    /// Which part of the block it is.
    var part: Int
  }

  /// The parts of a block, in sixteenths: the first one is what a reader gets first.
  static let parts = [1, 3, 4, 4, 4]

  let bytesPerSecond: Double
  private(set) var bytes = 0.0
  private(set) var epoch = 0
  /// What each fetch has got since the start, in bytes: it grows by the same for all.
  private var level = 0.0
  private var time: Int64 = 0
  private var ends: [Fetch: (start: Double, end: Double)] = [:]

  init(bytesPerSecond: Double) { self.bytesPerSecond = bytesPerSecond }

  var underWay: Int { ends.count }

  func isUnderWay(_ fetch: Fetch) -> Bool { ends[fetch] != nil }

  private mutating func advance(to now: Int64) {
    if !ends.isEmpty {
      let gained = Double(now - time) / 1e6 * bytesPerSecond
      level += gained / Double(ends.count)
      bytes += gained
    }
    time = now
  }

  mutating func start(_ fetch: Fetch, bytes: Double, now: Int64) {
    advance(to: now)
    ends[fetch] = (level, level + bytes)
    epoch += 1
  }

  mutating func stop(now: Int64, where isGone: (Fetch) -> Bool) {
    advance(to: now)
    for fetch in ends.keys where isGone(fetch) { ends[fetch] = nil }
    epoch += 1
  }

  /// When the next part is here.
  var next: Int64? {
    guard let end = ends.values.map(\.end).min() else { return nil }
    return time + Int64((max(0, end - level) * Double(ends.count) / bytesPerSecond * 1e6).rounded(.up))
  }

  /// The parts that are here now.
  mutating func take(now: Int64) -> [Fetch] {
    advance(to: now)
    // A byte more or less is rounding.
    let done = ends.filter { $0.value.end <= level + 1 }.keys.sorted { ($0.node, $0.block) < ($1.node, $1.block) }
    for fetch in done { ends[fetch] = nil }
    epoch += 1
    return done
  }
}
