import Base
import Testing

@testable import Server

/// When a list that changes is read.
@Suite struct ListSettlingTables {
  private static func mark(_ size: Int64) -> ListMark {
    ListMark(device: 1, inode: 1, size: size, modified: size, changed: size)
  }
  private static func at(_ seconds: Double) -> Instant { Instant(nanoseconds: 1_000_000_000).adding(seconds: seconds) }

  /// Plays events at their times; gives what the last one brings.
  private func last(
    of events: [(Double, ListSettling.Event)], settled: ListMark? = mark(1)
  ) -> ListSettling.Action {
    var settling = ListSettling(settled: settled)
    var action = ListSettling.Action.nothing
    for (time, event) in events { action = settling.handle(event, Self.at(time)) }
    return action
  }

  @Test("What did not change is not read")
  func same() {
    #expect(last(of: [(0, .looked(Self.mark(1)))]) == .nothing)
    #expect(last(of: [(0, .looked(Self.mark(1))), (60, .looked(Self.mark(1)))]) == .nothing)
  }

  @Test("A change is read after a quiet moment, which another change begins anew")
  func quiet() {
    let changed: [(Double, ListSettling.Event)] = [(0, .closed), (0, .looked(Self.mark(2)))]
    #expect(last(of: changed) == .lookIn(0.5))
    #expect(last(of: changed + [(0.25, .looked(Self.mark(2)))]) == .lookIn(0.25))
    #expect(last(of: changed + [(0.5, .looked(Self.mark(2)))]) == .read)
    #expect(last(of: changed + [(0.4, .looked(Self.mark(3))), (0.6, .looked(Self.mark(3)))]) != .read)
  }

  @Test("A change that no event tells of may go on, but for one before the first look")
  func unheard() {
    #expect(last(of: [(0, .looked(Self.mark(2)))]) == .lookIn(0.5))
    let changed: [(Double, ListSettling.Event)] = [(0, .looked(Self.mark(1))), (5, .looked(Self.mark(2)))]
    #expect(last(of: changed) == .lookIn(10))
    #expect(last(of: changed + [(10, .looked(Self.mark(3))), (15, .looked(Self.mark(3)))]) == .lookIn(5))
    #expect(last(of: changed + [(10, .looked(Self.mark(3))), (20, .looked(Self.mark(3)))]) == .read)
    #expect(last(of: changed + [(6, .closed), (6.5, .looked(Self.mark(2)))]) == .read)
  }

  @Test("A list that is replaced again and again is read all the same, and each time anew after a while")
  func neverQuiet() {
    var settling = ListSettling(settled: Self.mark(0))
    var reads: [Double] = []
    for step in 1..<200 {
      let time = Double(step) * 0.25
      _ = settling.handle(.closed, Self.at(time))
      guard settling.handle(.looked(Self.mark(Int64(step))), Self.at(time)) == .read else { continue }
      reads.append(time)
      if reads.count < 3 {
        #expect(settling.missed(Self.at(time)) == reads.count)
      } else {
        settling.read(as: Self.mark(Int64(step)))
      }
    }
    #expect(reads == [10.25, 20.25, 30.25, 40.5])
  }

  @Test("A program that has not closed the list gets more time, and one that never closes it does not stop it")
  func halfWritten() {
    let written: [(Double, ListSettling.Event)] = [(0, .written), (0, .looked(Self.mark(2)))]
    #expect(last(of: written + [(1, .looked(Self.mark(2)))]) == .lookIn(9))
    #expect(last(of: written + [(1, .closed), (1.5, .looked(Self.mark(2)))]) == .read)
    #expect(last(of: written + [(10, .looked(Self.mark(2)))]) == .read)
  }

  @Test("A write that leaves size and time as they were is read")
  func sameMark() {
    #expect(last(of: [(0, .closed), (0.5, .looked(Self.mark(1)))]) == .read)
  }

  @Test("A list that is away for a moment is no news; one that stays away is told of, once")
  func missing() {
    #expect(last(of: [(0, .looked(nil))]) == .lookIn(5))
    #expect(last(of: [(0, .looked(nil)), (1, .looked(Self.mark(1)))]) == .lookIn(0.5))
    #expect(
      last(of: [(0, .looked(Self.mark(1))), (1, .looked(nil)), (2, .looked(Self.mark(1)))]) == .lookIn(10))
    #expect(last(of: [(0, .looked(nil)), (5, .looked(nil))]) == .complain)
    #expect(last(of: [(0, .looked(nil)), (5, .looked(nil)), (10, .looked(nil))]) == .nothing)
    #expect(
      last(of: [(0, .looked(nil)), (5, .looked(nil)), (6, .looked(Self.mark(1))), (6.5, .looked(Self.mark(1)))])
        == .read)
  }

  @Test("A list that was refused is not read again before it changes")
  func refused() {
    var settling = ListSettling(settled: Self.mark(1))
    _ = settling.handle(.looked(Self.mark(2)), Self.at(0))
    #expect(settling.handle(.looked(Self.mark(2)), Self.at(1)) == .read)
    settling.read(as: Self.mark(2))
    #expect(settling.handle(.looked(Self.mark(2)), Self.at(60)) == .nothing)
    _ = settling.handle(.closed, Self.at(61))
    #expect(settling.handle(.looked(Self.mark(3)), Self.at(61)) == .lookIn(0.5))
  }
}
