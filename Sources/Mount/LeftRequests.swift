/// A request that the last server took and did not answer, and where the session memory has it.
enum LeftRequest: Equatable {
  case buffer(Int)
  case slot(Int)
}

extension SessionMemory {
  /// What the last server left. A request that is in a buffer and in a slot is taken from the slot: the server was
  /// killed just after it had copied it.
  func leftRequests() -> (requests: [LeftRequest], numbers: Set<UInt64>) {
    var left: [LeftRequest] = []
    var numbers: Set<UInt64> = []
    for index in 0..<slotMark {
      guard let request = request(inSlot: index) else { continue }
      left.append(.slot(index))
      numbers.insert(Self.number(of: request))
    }
    for index in 0..<SessionLayout.bufferCount {
      guard let request = request(inBuffer: index) else { continue }
      let number = Self.number(of: request)
      // Without a number, the helper has answered it, and left it for ``noteSuspects()``.
      if number != 0 && numbers.insert(number).inserted {
        left.append(.buffer(index))
      } else {
        clearBuffer(index)
      }
    }
    return (left, numbers)
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

  private static func number(of request: UnsafeRawBufferPointer) -> UInt64 {
    request.loadUnaligned(fromByteOffset: RequestHeader.uniqueAt, as: UInt64.self)
  }
}
