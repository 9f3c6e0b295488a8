/// Bytes of one transfer that were not handed over yet; none between two calls of libcurl.
struct GatheredBytes: ~Copyable {
  /// As long as libcurl's own buffer: what it reads at once is handed over at once.
  static let limit = EasyHandle.bufferSize

  private let buffer = UnsafeMutableRawBufferPointer.allocate(byteCount: limit, alignment: 4096)
  private var count = 0
  private var slot: TransferSlot?

  deinit { buffer.deallocate() }

  /// Whether as many bytes of `slot` can be added to those that are here.
  func takes(_ more: Int, for slot: TransferSlot) -> Bool { self.slot === slot && count + more <= buffer.count }

  /// Adds bytes that it takes, or that are the first and no more than ``limit``.
  mutating func add(_ bytes: UnsafeRawBufferPointer, for slot: TransferSlot) {
    UnsafeMutableRawBufferPointer(rebasing: buffer[count...]).copyMemory(from: bytes)
    count += bytes.count
    self.slot = slot
  }

  /// All of them, to be used before others are added; nil when there are none.
  mutating func take() -> (slot: TransferSlot, bytes: UnsafeRawBufferPointer)? {
    guard let slot else { return nil }
    defer { (self.slot, count) = (nil, 0) }
    return (slot, UnsafeRawBufferPointer(rebasing: buffer[..<count]))
  }
}
