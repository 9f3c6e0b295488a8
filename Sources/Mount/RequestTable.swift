import Base
import Reading

/// The requests that mediafs may answer later, from the call to the filesystem until the reply.
///
/// A ticket is a slot of this table and the slot's generation, not the request's address. libfuse frees a request with
/// its reply and may put the next one at the same address, so an address could not tell a late interrupt or a second
/// reply from one for the new request. A ticket of an earlier generation names no request.
///
///     free      -> calling    begin: mediafs calls the filesystem
///     calling   -> free       settle: it answered at once, and the reply is written
///     calling   -> parked     park
///     calling   -> answering  take, by another thread before the call returned
///     answering -> answered   done: the reply is written
///     answering -> replying   park
///     answered  -> free       park
///     parked    -> replying   take
///     replying  -> free       done: the reply is written
///
/// A slot of this table is the slot of the same number in the session memory, which has the request while it is parked
/// or replying: if the server is killed, the next one answers it.
///
/// Plain data: ``Tickets`` guards it with a lock.
struct RequestTable {
  private enum Phase { case free, calling, answering, answered, parked, replying }

  private struct Slot {
    var phase = Phase.free
    var generation: UInt32 = 0
    var request: OpaquePointer?  // fuse_req_t; the reply frees it
    var unique: UInt64 = 0  // the kernel's number of it
    var process: Int32 = 0
    var isInterrupted = false  // during the call: `park` delivers it
    var isLeft = false  // the last server took it, and may have been told that it is interrupted
    var isKept = false  // the session memory has it
  }

  /// A request to answer.
  struct Taken: Equatable {
    var request: OpaquePointer
    var unique: UInt64
  }

  /// What to do about an interrupt.
  enum Interruption: Equatable {
    /// Nothing: the request is answered, or `park` delivers the interrupt when the call returns.
    case none
    /// Tell the filesystem; `process` is the caller.
    case deliver(process: Int32)
    /// Check the watched requests: this is the first one.
    case look
    /// The session memory has no slot for the request: it must be refused.
    case unkept
  }

  private let memory: SessionMemory
  private var slots: [Slot] = []
  private var vacant: [Int] = []
  private var isEnded = false
  /// Parked requests that were interrupted while their callers lived, or that the last server took, with the callers.
  /// The kernel interrupts a request once, so mediafs must poll for a later kill (a Go program's own scheduler
  /// interrupts it all the time).
  private(set) var watched: [Ticket: Int32] = [:]

  /// The requests that the last server parked keep their slots until ``begin(_:unique:process:again:)``.
  init(_ memory: SessionMemory) {
    self.memory = memory
    for index in 0..<memory.slotMark {
      let isKept = memory.request(inSlot: index) != nil
      slots.append(Slot(isKept: isKept))
      if !isKept { vacant.append(index) }
    }
  }

  /// How many slots are in use: requests without a reply, or whose call has not returned.
  var count: Int { slots.count - vacant.count }

  /// Notes that mediafs is about to call the filesystem. `again`: the slot of a request that the last server parked.
  /// `isLeft`: the last server took it.
  mutating func begin(
    _ request: OpaquePointer, unique: UInt64, process: Int32, again: Int? = nil, isLeft: Bool = false
  ) -> Ticket {
    let index: Int
    if let again {
      index = again
    } else if let last = vacant.popLast() {
      index = last
    } else {
      index = slots.count
      slots.append(Slot())
      if index < SessionLayout.slotCount { memory.raiseSlotMark(to: index + 1) }
    }
    slots[index].phase = .calling
    slots[index].generation &+= 1
    slots[index].request = request
    slots[index].unique = unique
    slots[index].process = process
    slots[index].isInterrupted = false
    slots[index].isLeft = isLeft
    return Ticket(rawValue: UInt(slots[index].generation) << 32 | UInt(index))
  }

  /// Notes that the filesystem answered at once, and that the reply is written.
  mutating func settle(_ ticket: Ticket) {
    if let index = index(of: ticket) { release(index) }
  }

  /// Notes that the filesystem keeps the ticket, and keeps `bytes`, the request, for the next server. From now on the
  /// caller may not use the request.
  mutating func park(_ ticket: Ticket, _ bytes: UnsafeRawBufferPointer) -> Interruption {
    guard let index = index(of: ticket) else { return .none }
    switch slots[index].phase {
    case .calling: slots[index].phase = .parked
    case .answering: slots[index].phase = .replying
    case .free, .answered, .parked, .replying:
      release(index)
      return .none
    }
    if !slots[index].isKept {
      slots[index].isKept = memory.keep(bytes, inSlot: index)
      if !slots[index].isKept { return .unkept }
    }
    if slots[index].phase != .parked { return .none }
    if slots[index].isInterrupted { return .deliver(process: slots[index].process) }
    return slots[index].isLeft && watch(ticket) ? .look : .none
  }

  /// The request, for the caller to answer, who then calls ``done(_:)``; nil when the ticket was answered before.
  mutating func take(_ ticket: Ticket) -> Taken? {
    guard let index = index(of: ticket), let request = slots[index].request else { return nil }
    switch slots[index].phase {
    case .calling: slots[index].phase = .answering
    case .parked: slots[index].phase = .replying
    case .free, .answering, .answered, .replying: return nil
    }
    if !watched.isEmpty { watched[ticket] = nil }
    slots[index].request = nil
    return Taken(request: request, unique: slots[index].unique)
  }

  /// Notes that the reply to a request that was taken is written.
  mutating func done(_ ticket: Ticket) {
    guard let index = index(of: ticket) else { return }
    if slots[index].phase == .answering { slots[index].phase = .answered } else { release(index) }
  }

  /// Notes that the kernel interrupted the request.
  mutating func interrupt(_ ticket: Ticket) -> Interruption {
    guard let index = index(of: ticket) else { return .none }
    switch slots[index].phase {
    case .calling:
      slots[index].isInterrupted = true
      return .none
    case .parked: return .deliver(process: slots[index].process)
    case .free, .answering, .answered, .replying: return .none
    }
  }

  /// Adds a request whose caller lives to the watched requests, unless it is answered already. True for the first one:
  /// the notifier checks them again and again while there are any.
  mutating func watch(_ ticket: Ticket) -> Bool {
    guard let index = index(of: ticket), slots[index].phase == .parked else { return false }
    defer { watched[ticket] = slots[index].process }
    return watched.isEmpty
  }

  private func index(of ticket: Ticket) -> Int? {
    let index = Int(ticket.rawValue & 0xFFFF_FFFF)
    guard index < slots.count, slots[index].phase != .free, slots[index].generation == UInt32(ticket.rawValue >> 32)
    else { return nil }
    return index
  }

  /// From now on no reply reaches the kernel: what is parked keeps its slot, for a next server.
  mutating func end() { isEnded = true }

  private mutating func release(_ index: Int) {
    if slots[index].isKept && !isEnded { memory.clearSlot(index) }
    slots[index].isKept = false
    slots[index].phase = .free
    slots[index].request = nil
    // Those that the session memory has a slot for are used first.
    if index < SessionLayout.slotCount { vacant.append(index) } else { vacant.insert(index, at: 0) }
  }
}
