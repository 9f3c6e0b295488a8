/// What is to happen when, in virtual time: microseconds. What is to happen at the same time happens in the order in
/// which it was added.
struct EventQueue<Event> {
  private struct Item {
    var time: Int64
    var number: Int
    var event: Event
    func isBefore(_ other: Item) -> Bool { (time, number) < (other.time, other.number) }
  }

  private var heap: [Item] = []
  private var added = 0
  private(set) var now: Int64 = 0

  mutating func add(_ event: Event, at time: Int64) {
    added += 1
    heap.append(Item(time: max(time, now), number: added, event: event))
    var child = heap.count - 1
    while child > 0, heap[child].isBefore(heap[(child - 1) / 2]) {
      heap.swapAt(child, (child - 1) / 2)
      child = (child - 1) / 2
    }
  }

  mutating func next() -> Event? {
    guard let first = heap.first, let last = heap.popLast() else { return nil }
    now = first.time
    if heap.isEmpty { return first.event }
    heap[0] = last
    var parent = 0
    while true {
      var least = parent
      for child in [2 * parent + 1, 2 * parent + 2] where child < heap.count && heap[child].isBefore(heap[least]) {
        least = child
      }
      if least == parent { return first.event }
      heap.swapAt(least, parent)
      parent = least
    }
  }
}
