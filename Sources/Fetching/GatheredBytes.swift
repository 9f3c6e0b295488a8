/// Bytes of one transfer that the client did not get yet; none between two calls of libcurl.
struct GatheredBytes: ~Copyable {
  /// The size of libcurl's own buffer: the client gets at once what libcurl reads at once.
  static let limit = EasyHandle.bufferSize

  private let buffer = UnsafeMutableRawBufferPointer.allocate(byteCount: limit, alignment: 4096)
  private var count = 0
  private var slot: TransferSlot?

  deinit { buffer.deallocate() }

  /// Whether `more` bytes of `slot` fit after those already gathered.
  func takes(_ more: Int, for slot: TransferSlot) -> Bool { self.slot === slot && count + more <= buffer.count }

  /// Adds bytes. Either they fit, or they are the first and no more than ``limit``.
  mutating func add(_ bytes: UnsafeRawBufferPointer, for slot: TransferSlot) {
    UnsafeMutableRawBufferPointer(rebasing: buffer[count...]).copyMemory(from: bytes)
    count += bytes.count
    self.slot = slot
  }

  /// Removes and returns all bytes, to be used before the next `add`; nil when there are none.
  mutating func take() -> (slot: TransferSlot, bytes: UnsafeRawBufferPointer)? {
    guard let slot else { return nil }
    defer { (self.slot, count) = (nil, 0) }
    return (slot, UnsafeRawBufferPointer(rebasing: buffer[..<count]))
  }
}
