import Base
import Reading

/// The requests that mediafs may answer later, from the call to the filesystem until the reply.
///
/// A ticket is a slot of this table and the slot's generation, not the request's address. libfuse frees a request with
/// its reply and may put the next one at the same address, so an address could not tell a late interrupt or a second
/// reply from one for the new request. A ticket of an earlier generation names no request.
///
///     free    -> calling   begin: mediafs calls the filesystem
///     calling -> free      settle(parked: false): it answered at once
///     calling -> parked    settle(parked: true)
///     calling -> answered  take, by another thread before the call returned
///     answered -> free     settle
///     parked  -> free      take: the reply
///
/// Plain data: ``Tickets`` guards it with a lock.
struct RequestTable {
  private enum Phase { case free, calling, answered, parked }

  private struct Slot {
    var phase = Phase.free
    var generation: UInt32 = 0
    var request: OpaquePointer?  // fuse_req_t; the reply frees it
    var process: Int32 = 0
    var isInterrupted = false  // during the call: `settle` delivers it
  }

  /// What to do about an interrupt.
  enum Interruption: Equatable {
    /// Nothing: the request is answered, or `settle` delivers the interrupt when the call returns.
    case none
    /// Tell the filesystem; `process` is the caller.
    case deliver(process: Int32)
  }

  private var slots: [Slot] = []
  private var vacant: [Int] = []
  /// Parked requests that were interrupted while their callers lived. The kernel interrupts a request once, so mediafs
  /// must poll for a later kill (a Go program's own scheduler interrupts it all the time).
  private(set) var watched: [Ticket] = []

  /// How many slots are in use: requests without a reply, or whose call has not returned.
  var count: Int { slots.count - vacant.count }

  /// Notes that mediafs is about to call the filesystem.
  mutating func begin(_ request: OpaquePointer, process: Int32) -> Ticket {
    let index: Int
    if let last = vacant.popLast() {
      index = last
    } else {
      index = slots.count
      slots.append(Slot())
    }
    slots[index].phase = .calling
    slots[index].generation &+= 1
    slots[index].request = request
    slots[index].process = process
    slots[index].isInterrupted = false
    return Ticket(rawValue: UInt(slots[index].generation) << 32 | UInt(index))
  }

  /// Notes that the call returned. From now on its caller may use the request only if it was not `parked`.
  mutating func settle(_ ticket: Ticket, parked: Bool) -> Interruption {
    guard let index = index(of: ticket) else { return .none }
    guard parked, slots[index].phase == .calling else {
      release(index)
      return .none
    }
    slots[index].phase = .parked
    return slots[index].isInterrupted ? .deliver(process: slots[index].process) : .none
  }

  /// The request, for the caller to answer; nil when the ticket was answered before.
  mutating func take(_ ticket: Ticket) -> OpaquePointer? {
    guard let index = index(of: ticket) else { return nil }
    let request = slots[index].request
    switch slots[index].phase {
    case .calling:
      slots[index].phase = .answered
      slots[index].request = nil
    case .parked: release(index)
    case .answered, .free: return nil
    }
    if !watched.isEmpty { watched.removeAll { $0 == ticket } }
    return request
  }

  /// Notes that the kernel interrupted the request.
  mutating func interrupt(_ ticket: Ticket) -> Interruption {
    guard let index = index(of: ticket) else { return .none }
    switch slots[index].phase {
    case .calling:
      slots[index].isInterrupted = true
      return .none
    case .parked: return .deliver(process: slots[index].process)
    case .answered, .free: return .none
    }
  }

  /// Adds an interrupted request whose caller lives to the watched requests; false when it is answered already.
  mutating func watch(_ ticket: Ticket) -> Bool {
    guard let index = index(of: ticket), slots[index].phase == .parked else { return false }
    if !watched.contains(ticket) { watched.append(ticket) }
    return true
  }

  /// The watched requests and their callers.
  func watchedProcesses() -> [(ticket: Ticket, process: Int32)] {
    watched.compactMap { ticket in index(of: ticket).map { (ticket, slots[$0].process) } }
  }

  private func index(of ticket: Ticket) -> Int? {
    let index = Int(ticket.rawValue & 0xFFFF_FFFF)
    guard index < slots.count, slots[index].phase != .free, slots[index].generation == UInt32(ticket.rawValue >> 32)
    else { return nil }
    return index
  }

  private mutating func release(_ index: Int) {
    slots[index].phase = .free
    slots[index].request = nil
    vacant.append(index)
  }
}
