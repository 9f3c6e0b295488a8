import CSystem

/// A point in time that never jumps, in nanoseconds of CLOCK_BOOTTIME: it counts on while the machine sleeps.
package struct Instant: Comparable, Hashable, Sendable {
  /// Nanoseconds since the machine started.
  package var nanoseconds: Int64

  /// That many nanoseconds since the machine started.
  @inlinable package init(nanoseconds: Int64) { self.nanoseconds = nanoseconds }

  /// Now.
  package static var now: Instant { Instant(nanoseconds: csystem_boottime_nanoseconds()) }

  /// The far future: no time at all.
  package static let never = Instant(nanoseconds: .max)

  /// Whether the left comes first.
  @inlinable package static func < (left: Instant, right: Instant) -> Bool { left.nanoseconds < right.nanoseconds }

  /// `seconds` later.
  @inlinable package func adding(seconds: Double) -> Instant {
    Instant(nanoseconds: nanoseconds &+ Int64(seconds * 1e9))
  }

  /// Seconds from `earlier` until this.
  @inlinable package func seconds(since earlier: Instant) -> Double {
    Double(nanoseconds - earlier.nanoseconds) / 1e9
  }
}
