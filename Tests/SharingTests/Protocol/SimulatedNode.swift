import Base

@testable import Sharing

/// A node of the simulation: the protocol, its breaker and its budget, one reader that copies the list, and what its
/// readers waited.
struct SimulatedNode {
  let id: UInt64
  var fleet: FleetNode
  var breaker = TierBreaker()
  var budget = UploadBudget(limit: 64 << 20)
  var life = 0
  var isDead = false
  var isDone = false
  /// Until when it is stopped, and how long it was stopped since the reader's wait began.
  var stoppedUntil: Int64 = 0
  var isCut = false

  /// The block of the list that the reader waits for.
  var position = 0
  var waitsSince: Int64 = 0
  var isAsking = false
  var longestWait: Int64 = 0
  /// Where and when that was.
  var longestAt = (block: 0, time: Int64(0))

  /// When its line to the store is free.
  var downFree: Int64 = 0
  var upFree: Int64 = 0
  var timers: [TimerKey: Int] = [:]
  var timerCount = 0
  /// When a fetch's last part came.
  var parts: [Int: Int64] = [:]
  var requests = 0

  struct TimerKey: Hashable {
    var place: FleetNode.Place?
    var timer: ShareTimer
  }

  init(id: UInt64, fleet: FleetNode) {
    self.id = id
    self.fleet = fleet
  }

  mutating func waited(until now: Int64) {
    // What it was stopped itself is not waiting for others.
    let wait = now - max(waitsSince, min(stoppedUntil, now))
    if wait > longestWait { (longestWait, longestAt) = (wait, (position, now)) }
    waitsSince = now
  }
}
