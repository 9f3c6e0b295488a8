import Base
import Glibc

/// What was waited for did not come about.
package struct WaitFailure: Error, CustomStringConvertible {
  /// What, and for how long.
  package let description: String
}

/// For how many seconds tests wait for what must come: a bound for a run that hangs, no measure.
package let waitBound = 60.0

/// Asks `condition` until it holds; throws when it does not within `timeout` seconds. Blocks the calling thread.
package func waitUntil(
  timeout: Double = waitBound, interval: Double = 0.005, _ what: String = "a condition", _ condition: () throws -> Bool
) throws {
  let deadline = Instant.now.adding(seconds: timeout)
  while try !condition() {
    if Instant.now > deadline { throw WaitFailure(description: "waited \(timeout) s in vain for \(what)") }
    sleep(seconds: interval)
  }
}

/// As the one above, without blocking the thread.
package func waitUntil(
  timeout: Double = waitBound, interval: Double = 0.005, _ what: String = "a condition",
  isolation: isolated (any Actor)? = #isolation, _ condition: () async throws -> Bool
) async throws {
  let deadline = Instant.now.adding(seconds: timeout)
  while try await !condition() {
    if Instant.now > deadline { throw WaitFailure(description: "waited \(timeout) s in vain for \(what)") }
    try await Task.sleep(nanoseconds: UInt64(interval * 1e9))
  }
}

/// Whether `condition` comes to hold within `timeout` seconds: for `#expect(eventually { … })`. Blocks the calling
/// thread.
package func eventually(timeout: Double = waitBound, interval: Double = 0.005, _ condition: () -> Bool) -> Bool {
  let deadline = Instant.now.adding(seconds: timeout)
  while !condition() {
    if Instant.now > deadline { return false }
    sleep(seconds: interval)
  }
  return true
}

/// As the one above, without blocking the thread; false as well when the task is cancelled.
package func eventually(
  timeout: Double = waitBound, interval: Double = 0.005, isolation: isolated (any Actor)? = #isolation,
  _ condition: () async -> Bool
) async -> Bool {
  let deadline = Instant.now.adding(seconds: timeout)
  while await !condition() {
    if Instant.now > deadline { return false }
    do { try await Task.sleep(nanoseconds: UInt64(interval * 1e9)) } catch { return false }
  }
  return true
}

/// Blocks the calling thread for `seconds`; signals do not cut it short.
package func sleep(seconds: Double) {
  guard seconds > 0 else { return }
  let nanoseconds = Int64(seconds * 1e9)
  var rest = timespec(tv_sec: Int(nanoseconds / 1_000_000_000), tv_nsec: Int(nanoseconds % 1_000_000_000))
  var left = timespec()
  while nanosleep(&rest, &left) == -1, errno == EINTR { rest = left }
}
