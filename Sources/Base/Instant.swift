import CSystem

/// A point in time in nanoseconds of CLOCK_BOOTTIME, which never jumps and also counts while the machine sleeps.
package struct Instant: Comparable, Hashable, Sendable {
  /// Nanoseconds since the machine started.
  package var nanoseconds: Int64

  /// The instant so many nanoseconds after the machine started.
  @inlinable package init(nanoseconds: Int64) { self.nanoseconds = nanoseconds }

  /// Now.
  package static var now: Instant { Instant(nanoseconds: csystem_boottime_nanoseconds()) }

  /// The far future, for a time that never comes.
  package static let never = Instant(nanoseconds: .max)

  /// Whether `left` is earlier.
  @inlinable package static func < (left: Instant, right: Instant) -> Bool { left.nanoseconds < right.nanoseconds }

  /// `seconds` later.
  @inlinable package func adding(seconds: Double) -> Instant {
    Instant(nanoseconds: nanoseconds &+ Int64(seconds * 1e9))
  }

  /// Seconds from `earlier` to this instant.
  @inlinable package func seconds(since earlier: Instant) -> Double {
    Double(nanoseconds - earlier.nanoseconds) / 1e9
  }
}
