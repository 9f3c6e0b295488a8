import Base
import Fetching

/// A plan in the making: the transfers in flight and the steps so far.
struct PlanDraft {
  /// The id that stands for every transfer that this plan starts.
  static let asked = TransferID(.max)
  let input: PlanInput
  var transfers: [ActiveTransfer]
  var steps: [PlanStep] = []
  /// How many bytes in flight may still be thrown away.
  var spare: Int64
  /// The ranges that are stored or will arrive without another request.
  private(set) var covered: ByteRangeSet

  init(input: PlanInput) {
    self.input = input
    transfers = input.transfers
    spare = input.spareBytes
    covered = input.available
    for transfer in transfers { covered.insert(transfer.rest) }
  }

  /// How many requests this plan makes.
  var requests: Int { steps.reduce(0) { if case .start = $1 { $0 + 1 } else { $0 } } }

  /// Whether a stream is in flight: no range can be requested beside it.
  var hasStream: Bool { transfers.contains { $0.isStream } }

  /// Cancels a transfer: the bytes that it would have brought are a hole again.
  mutating func cancel(_ index: Int) {
    steps.append(.cancel(transfers[index].id))
    transfers.remove(at: index)
    covered = input.available
    for transfer in transfers { covered.insert(transfer.rest) }
  }

  /// Requests at most `length` bytes of the first hole behind `start`, up to bytes that are stored or requested.
  mutating func ask(from start: Int64, length: Int64, _ purpose: Purpose) {
    let bounds = ByteRange(start, max(start, min(input.size, start + length)))
    guard let gap = covered.firstGap(in: bounds) else { return }
    steps.append(.start(gap, purpose))
    covered.insert(gap)
    transfers.append(
      ActiveTransfer(
        id: Self.asked, position: gap.start, end: gap.end, purpose: purpose, rate: nil,
        isConnecting: input.line.hasHandshakes && requests > input.line.flights.count))
  }
}
