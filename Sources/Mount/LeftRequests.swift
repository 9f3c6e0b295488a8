/// A request that the last server took and did not answer, and where the session memory has it.
enum LeftRequest: Equatable {
  case buffer(Int)
  case slot(Int)
}

/// What the last server left of requests.
struct LeftRequests {
  var requests: [LeftRequest] = []
  /// Their numbers.
  var numbers: Set<UInt64> = []
  /// The numbers in records that are not as a server or the kernel wrote them.
  var damaged: Set<UInt64> = []
}

extension SessionMemory {
  /// What the last server left. A request that is in a buffer and in a slot is taken from the slot: the server was
  /// killed just after it had copied it. What is no request is dropped: libfuse believes what it is given.
  func leftRequests() -> LeftRequests {
    var left = LeftRequests()
    for index in 0..<slotMark where isTaken(slot: index) {
      if let request = request(inSlot: index), request.isOfTheKernel {
        left.requests.append(.slot(index))
        left.numbers.insert(request.number)
      } else {
        left.damaged.insert(bytes(ofSlot: index).number)
        clearSlot(index)
      }
    }
    for index in 0..<SessionLayout.bufferCount {
      guard UnsafeRawBufferPointer(buffer(index)).load(as: UInt32.self) != 0 else { continue }
      let request = request(inBuffer: index)
      let isIntact = request?.isOfTheKernel ?? false
      let number = UnsafeRawBufferPointer(buffer(index)).number
      // Without a number, the helper has answered it, and left it for ``noteSuspects()``.
      if isIntact && number != 0 && left.numbers.insert(number).inserted {
        left.requests.append(.buffer(index))
      } else {
        if !isIntact { left.damaged.insert(number) }
        clearBuffer(index)
      }
    }
    left.damaged.subtract(left.numbers)
    return left
  }

  /// Counts the deaths of the last server's threads against the requests that they served.
  func noteSuspects() {
    for index in 0..<SessionLayout.bufferCount - 1 {
      guard let request = takeDeadlyRequest(ofThread: index), let new = Suspect(request) else { continue }
      let known = (0..<SessionLayout.suspectCount).map { suspect($0) }
      if let same = known.firstIndex(where: { $0?.overlaps(new) ?? false }), let old = known[same] {
        keep(old.with(new), at: same)
      } else if let place = known.firstIndex(where: { $0 == nil })
        ?? known.firstIndex(where: { $0.map { $0.deaths < Suspect.mostDeaths } ?? true })
      {
        keep(new, at: place)
      }
    }
  }

  /// What is not served again in this mount.
  var refused: [Suspect] {
    (0..<SessionLayout.suspectCount).compactMap { suspect($0) }.filter { $0.deaths >= Suspect.mostDeaths }
  }
}

extension UnsafeRawBufferPointer {
  /// The number in a request's header.
  fileprivate var number: UInt64 { loadUnaligned(fromByteOffset: RequestHeader.uniqueAt, as: UInt64.self) }

  /// Whether the kernel may have sent this request, as far as libfuse and ``Operations`` rely on it: names end within
  /// it, and the place of a READ is one that a file can have.
  var isOfTheKernel: Bool {
    guard let operation = operation(of: self) else { return false }
    let body = UnsafeRawBufferPointer(rebasing: self[RequestHeader.length...])
    switch operation {
    case 15, 28, 44:  // READ, READDIR, READDIRPLUS: the handle, the offset, the size
      guard body.count >= 24 else { return false }
      let offset = body.loadUnaligned(fromByteOffset: 8, as: Int64.self)
      let size = body.loadUnaligned(fromByteOffset: 16, as: UInt32.self)
      return offset >= 0 && size <= Self.longestRead && offset <= .max - Int64(size)
    case 1, 6, 8...13, 22, 24, 35, 45, 51: return body.last == 0  // names at the end
    case 21: return body.dropFirst(8).contains(0)  // SETXATTR: the name, then the value
    case 26, 38, 41: return false  // INIT, DESTROY, NOTIFY_REPLY: the kernel sends none to a mount that is served
    default: return true
    }
  }

  /// More than the kernel asks for at once.
  private static let longestRead: UInt32 = 16 << 20
}
