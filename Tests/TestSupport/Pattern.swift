import Glibc

/// The bytes of the test origin's resources: a pure function of a name, a generation and an offset.
///
/// Block `i` (eight bytes, little-endian) is splitmix64's output function of `seed + i × γ`, where the seed mixes the
/// name and the generation (Steele, Lea, Flood: Fast Splittable Pseudorandom Number Generators, OOPSLA 2014). So any
/// read can be checked anywhere without the file, and bytes from another place, name or generation never look right for
/// long. Every function may be called on any thread.
package enum Pattern {
  private static let gamma: UInt64 = 0x9e37_79b9_7f4a_7c15
  /// The most that is made at a time when it must be compared or moved: stays in the first-level cache.
  private static let pieceBlocks = 512

  /// The byte at `offset` (which is not negative).
  package static func byte(name: String, generation: UInt64, offset: Int64) -> UInt8 {
    let at = UInt64(offset)
    return UInt8(truncatingIfNeeded: block(seed(name, generation), at &>> 3) &>> ((at & 7) &* 8))
  }

  /// Fills `buffer` with the bytes from `offset` on.
  package static func fill(
    _ buffer: UnsafeMutableRawBufferPointer, name: String, generation: UInt64, offset: Int64
  ) {
    let seed = seed(name, generation)
    var target = buffer
    var at = UInt64(offset)
    // Up to the first whole block, byte by byte.
    while at & 7 != 0, let first = target.baseAddress, !target.isEmpty {
      let value = UInt8(truncatingIfNeeded: block(seed, at &>> 3) &>> ((at & 7) &* 8))
      first.storeBytes(of: value, as: UInt8.self)
      target = UnsafeMutableRawBufferPointer(rebasing: target[1...])
      at += 1
    }
    guard let base = target.baseAddress else { return }
    let whole = target.count / 8
    if UInt(bitPattern: base) & 7 == 0 {
      // Aligned, so the memory may be written as words: raw bytes have no type that this could break.
      fillBlocks(base.assumingMemoryBound(to: UInt64.self), whole, seed, at &>> 3)
    } else {
      withPiece { piece in
        var done = 0
        while done < whole {
          let count = min(whole - done, pieceBlocks)
          fillBlocks(piece, count, seed, at &>> 3 &+ UInt64(done))
          memcpy(base + done * 8, piece, count * 8)
          done += count
        }
      }
    }
    var last = block(seed, at &>> 3 &+ UInt64(whole)).littleEndian
    memcpy(base + whole * 8, &last, target.count - whole * 8)
  }

  /// The bytes from `offset` on, `count` of them.
  package static func bytes(name: String, generation: UInt64 = 1, offset: Int64, count: Int) -> [UInt8] {
    [UInt8](unsafeUninitializedCapacity: count) { buffer, filled in
      fill(UnsafeMutableRawBufferPointer(buffer), name: name, generation: generation, offset: offset)
      filled = count
    }
  }

  /// The offset (in the resource) of the first byte of `buffer` that is wrong, nil when every byte is right. What was
  /// right counts as compared (``Figures``).
  package static func check(
    _ buffer: UnsafeRawBufferPointer, name: String, generation: UInt64, offset: Int64
  ) -> Int64? {
    guard let base = buffer.baseAddress else { return nil }
    return withPiece { piece in
      let expected = UnsafeMutableRawBufferPointer(start: piece, count: pieceBlocks * 8)
      var done = 0
      while done < buffer.count {
        let count = min(buffer.count - done, expected.count)
        let part = UnsafeMutableRawBufferPointer(rebasing: expected[..<count])
        fill(part, name: name, generation: generation, offset: offset + Int64(done))
        if memcmp(piece, base + done, count) != 0 {
          for index in 0..<count where part[index] != buffer[done + index] { return offset + Int64(done + index) }
        }
        done += count
      }
      Figures.add("bytes compared", buffer.count)
      return nil
    }
  }

  /// As ``check(_:name:generation:offset:)-(UnsafeRawBufferPointer,_,_,_)``, of an array.
  package static func check(_ bytes: [UInt8], name: String, generation: UInt64 = 1, offset: Int64) -> Int64? {
    bytes.withUnsafeBytes { check($0, name: name, generation: generation, offset: offset) }
  }

  /// The one generation of `generations` that has all of `bytes` at `offset`: nil when they belong to none of them
  /// (wrong bytes, or a mix). Give it eight bytes or more: one byte fits one generation in 256 by chance.
  package static func generation(
    of bytes: [UInt8], name: String, offset: Int64, among generations: ClosedRange<UInt64>
  ) -> UInt64? {
    generations.first { check(bytes, name: name, generation: $0, offset: offset) == nil }
  }

  /// FNV-1a of the name, mixed with the generation: seeds of different resources are unrelated.
  private static func seed(_ name: String, _ generation: UInt64) -> UInt64 {
    var hash: UInt64 = 0xcbf2_9ce4_8422_2325
    for byte in name.utf8 { hash = (hash ^ UInt64(byte)) &* 0x100_0000_01b3 }
    return block(block(hash, 0), generation)
  }

  private static func block(_ seed: UInt64, _ index: UInt64) -> UInt64 {
    var mixed = seed &+ index &* gamma
    mixed = (mixed ^ (mixed &>> 30)) &* 0xbf58_476d_1ce4_e5b9
    mixed = (mixed ^ (mixed &>> 27)) &* 0x94d0_49bb_1331_11eb
    return mixed ^ (mixed &>> 31)
  }

  /// Only wrapping operators, which are transparent: gigabytes a second in debug builds too, where the tests run.
  private static func fillBlocks(_ target: UnsafeMutablePointer<UInt64>, _ count: Int, _ seed: UInt64, _ index: UInt64)
  {
    var sum = seed &+ index &* gamma
    var next = target
    let end = target + count
    while next < end {
      var mixed = sum
      mixed = (mixed ^ (mixed &>> 30)) &* 0xbf58_476d_1ce4_e5b9
      mixed = (mixed ^ (mixed &>> 27)) &* 0x94d0_49bb_1331_11eb
      next.pointee = (mixed ^ (mixed &>> 31)).littleEndian
      sum = sum &+ gamma
      next += 1
    }
  }

  /// Lends aligned space for `pieceBlocks` blocks.
  private static func withPiece<Result>(_ body: (UnsafeMutablePointer<UInt64>) -> Result) -> Result {
    withUnsafeTemporaryAllocation(of: UInt64.self, capacity: pieceBlocks) { space in
      // A temporary allocation of a fixed, positive size has an address.
      body(space.baseAddress!)
    }
  }
}
