/// The store's clock, as far as it differs from this machine's: stores refuse what is signed more than 15 minutes off.
/// Pure.
struct ServerClock: Equatable {
  /// A difference that counts. Less does no harm, and a Date has whole seconds and a way behind it.
  static let tolerance: Int64 = 60

  /// What to add to this machine's time, in seconds.
  private(set) var offset: Int64 = 0
  /// How far the last Date was ahead of this machine's clock, in seconds: for times that machines compare, where less
  /// than the tolerance counts too.
  private(set) var ahead: Int64 = 0

  /// The time to sign with, of this machine's.
  func time(_ local: Int64) -> Int64 { local + offset }

  /// The store's Date came at this machine's `local` time. Follows it if it is off; a clock that was set right again
  /// is followed in the same way.
  mutating func heard(_ date: Int64, at local: Int64) {
    ahead = date - local
    if abs(date - time(local)) > Self.tolerance { offset = ahead }
  }

  /// Whether what was signed at `signed` is to be signed anew, now that it is `local` here.
  func isOff(_ signed: Int64, at local: Int64) -> Bool { abs(time(local) - signed) > Self.tolerance }
}
