/// What the debug log (`-v`) tells of transfers. One thread writes it: its order is the order of things, whatever the
/// time.
enum TransferEvent: Equatable, Sendable {
  /// Asked for: `demand`, `continuation`, …, of a file.
  case asked(Int, purpose: String, file: String)
  /// The head of its answer came.
  case answered(Int)
  case ended(Int)

  static func events(_ log: String) -> [TransferEvent] {
    log.split(separator: "\n").compactMap { line -> TransferEvent? in
      guard let start = line.firstRange(of: "transfer ") else { return nil }
      let words = line[start.upperBound...].split(separator: " ")
      guard words.count > 1, let number = Int(words[0].dropLast()), words[0].hasSuffix(":") else { return nil }
      switch words[1] {
      case "demand", "playAhead", "index", "continuation":
        return .asked(number, purpose: String(words[1]), file: String(words.last ?? ""))
      case "status": return .answered(number)
      case "finished", "cancelled", "failed": return .ended(number)
      default: return nil
      }
    }
  }

  /// The counts of packets that came out of order, as they were told.
  static func misordered(_ log: String) -> Set<String> {
    Set(log.matches(of: /: ([0-9]+) packets out of order so far/).map { String($0.1) })
  }

  /// What was asked for with nobody waiting for it, between a demand and its answer.
  static func intrusions(_ events: [TransferEvent]) -> [TransferEvent] {
    var unanswered: Set<Int> = []
    var found: [TransferEvent] = []
    for event in events {
      switch event {
      case .asked(let number, let purpose, _):
        if purpose == "demand" { unanswered.insert(number) }
        if purpose == "continuation", !unanswered.isEmpty { found.append(event) }
      case .answered(let number), .ended(let number): unanswered.remove(number)
      }
    }
    return found
  }

  /// How many windows were asked for that nobody waited for.
  static func continuations(_ events: [TransferEvent]) -> Int {
    events.count { if case .asked(_, "continuation", _) = $0 { true } else { false } }
  }

  /// The most transfers that were under way at once.
  static func peak(_ events: [TransferEvent]) -> Int {
    var running: Set<Int> = []
    var most = 0
    for event in events {
      switch event {
      case .asked(let number, _, _): running.insert(number)
      case .answered: break
      case .ended(let number): running.remove(number)
      }
      most = max(most, running.count)
    }
    return most
  }
}
