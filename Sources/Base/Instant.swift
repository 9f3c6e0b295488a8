import CSystem

/// A point in time that never jumps, in nanoseconds of CLOCK_BOOTTIME: it counts on while the machine sleeps.
public struct Instant: Comparable, Hashable, Sendable {
  /// Nanoseconds since the machine started.
  public var nanoseconds: Int64

  /// That many nanoseconds since the machine started.
  @inlinable public init(nanoseconds: Int64) { self.nanoseconds = nanoseconds }

  /// Now.
  public static var now: Instant { Instant(nanoseconds: csystem_boottime_nanoseconds()) }

  /// The far future: no time at all.
  public static let never = Instant(nanoseconds: .max)

  /// Whether the left comes first.
  @inlinable public static func < (left: Instant, right: Instant) -> Bool { left.nanoseconds < right.nanoseconds }

  /// `seconds` later.
  @inlinable public func adding(seconds: Double) -> Instant {
    Instant(nanoseconds: nanoseconds &+ Int64(seconds * 1e9))
  }

  /// Seconds from `earlier` until this.
  @inlinable public func seconds(since earlier: Instant) -> Double {
    Double(nanoseconds - earlier.nanoseconds) / 1e9
  }
}
