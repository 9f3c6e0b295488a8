import Base
import Glibc

extension OriginConnection {
  /// Sends a body at the rates that are set, and breaks it off where a fault says so.
  mutating func send(
    _ body: OriginPlan.Body, plan: OriginPlan, quirks: OriginQuirks, request: OriginRequest
  ) throws(OriginGone) {
    var source = body.source
    var coder = OriginCoder(isGzip: body.isGzip, isChunked: plan.framing != .length && plan.framing != .untilClose)
    let total = body.range.count
    var sent: Int64 = 0
    var switchAt = quirks.nextGenerationAfter
    let space = pieceSpace()
    let log = origin.log
    origin.line.addSenders(1)
    defer { origin.line.addSenders(-1) }

    try sendAll(coder.coded(prefix: body.prefix))
    while true {
      if let cut = quirks.cut, sent >= cut.after { try breakOff(cut.kind) }
      if let after = switchAt, sent >= after {
        if sent == 0 { origin.nextGeneration(request.path) }
        switchAt = nil
        source.generation += 1
      }
      if sent == total { break }
      var most = min(total - sent, Int64(space.count))
      for limit in [quirks.cut?.after, switchAt, quirks.slow?.after] {
        if let limit, limit > sent { most = min(most, limit - sent) }
      }
      let isSlow = quirks.slow.map { sent >= $0.after } ?? false
      let count = try grant(Int(most), slowRate: isSlow ? quirks.slow?.rate : nil)
      let piece = UnsafeMutableRawBufferPointer(rebasing: space[..<count])
      let offset = body.range.start + sent
      // A file that shrank: the announced length cannot be kept.
      guard source.fill(piece, offset: offset) else { throw .fault(reset: false) }
      // Before a client can have all bytes of the old generation, and ask for the next ones.
      if switchAt == sent + Int64(count) { origin.nextGeneration(request.path) }
      if coder.isIdentity {
        var written: Int64 = 0
        try socket.send(UnsafeRawBufferPointer(piece)) { part in
          let range = ByteRange(at: offset + written, count: Int64(part))
          log.wrote(
            request.id, body: Int64(part), range: source.isResource ? range : nil, generation: source.generation)
          written += Int64(part)
        }
      } else {
        // Counted when all of it is written: where in a coded piece a client left is not told apart.
        let coded = coder.coded(piece: UnsafeRawBufferPointer(piece))
        try sendAll(coded)
        let range = ByteRange(at: offset, count: Int64(count))
        log.wrote(
          request.id, body: Int64(coded.count), range: source.isResource ? range : nil, generation: source.generation)
      }
      sent += Int64(count)
    }
    var trailers = false
    if case .chunked(trailers: true) = plan.framing { trailers = true }
    try sendAll(coder.coded(suffix: body.suffix, trailers: trailers))
    // More was announced: the client waits for it, and meets the end of the connection.
    if plan.lengthOff > 0 { throw .fault(reset: false) }
  }

  /// Waits for the right to send: how many of `most` bytes may go now.
  private func grant(_ most: Int, slowRate: Double?) throws(OriginGone) -> Int {
    try waitWhileFrozen()
    let settings = origin.settings
    let ownRate = slowRate ?? settings.connectionRate
    var count = most
    if let ownRate { count = min(count, ownLine.turn(rate: ownRate)) }
    if let rate = settings.lineRate { count = min(count, origin.line.turn(rate: rate)) }
    // The own rate first: the shared line is not to be kept for one that may not use it yet.
    if let ownRate { try socket.wait(until: ownLine.reserve(count, rate: ownRate)) }
    if let rate = settings.lineRate { try socket.wait(until: origin.line.reserve(count, rate: rate)) }
    return count
  }

  private func breakOff(_ kind: OriginQuirks.Cut.Kind) throws(OriginGone) {
    switch kind {
    case .close: throw .fault(reset: false)
    case .stall: try socket.wait(until: .never)
    case .reset:
      try socket.waitUntilDelivered()
      throw .fault(reset: true)
    }
  }
}

/// Puts a body into gzip's frame, into chunks, or both.
struct OriginCoder {
  private var gzip: GzipFrame?
  private let isChunked: Bool

  init(isGzip: Bool, isChunked: Bool) {
    gzip = isGzip ? GzipFrame() : nil
    self.isChunked = isChunked
  }

  /// Whether pieces go out as they are.
  var isIdentity: Bool { gzip == nil && !isChunked }

  mutating func coded(prefix: [UInt8]) -> [UInt8] { chunk(prefix + (gzip == nil ? [] : GzipFrame.head)) }

  mutating func coded(piece: UnsafeRawBufferPointer) -> [UInt8] {
    chunk(gzip?.blocks(piece) ?? Array(piece))
  }

  mutating func coded(suffix: [UInt8], trailers: Bool) -> [UInt8] {
    let end = chunk((gzip?.end() ?? []) + suffix)
    guard isChunked else { return end }
    return end + Array("0\r\n\(trailers ? "X-Trailer: done\r\n" : "")\r\n".utf8)
  }

  private func chunk(_ bytes: [UInt8]) -> [UInt8] {
    // An empty chunk would be the last one.
    guard isChunked, !bytes.isEmpty else { return bytes }
    return Array("\(String(bytes.count, radix: 16))\r\n".utf8) + bytes + [13, 10]
  }
}

/// A gzip file of stored blocks (RFC 1952, RFC 1951 section 3.2.4): valid, and no smaller than its content.
///
/// Each piece becomes a block of its own, so the length depends on how it is cut: pieces are cut to `block` bytes and
/// filled up, which makes the length known beforehand.
struct GzipFrame {
  static let head: [UInt8] = [0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 255]
  private static let block = 65_535
  private var waiting: [UInt8] = []
  private var check: UInt32 = 0xffff_ffff
  private var count: UInt32 = 0

  /// The length of the frame around `count` bytes.
  static func length(of count: Int64) -> Int64 {
    // At least one block: the last one is there even if it is empty.
    Int64(head.count) + 5 * max(1, (count + Int64(block) - 1) / Int64(block)) + count + 8
  }

  /// Takes a piece: the blocks that are full by now. The last block is kept back for ``end()``.
  mutating func blocks(_ piece: UnsafeRawBufferPointer) -> [UInt8] {
    for byte in piece { check = Self.table[Int((check ^ UInt32(byte)) & 0xff)] ^ (check >> 8) }
    count &+= UInt32(truncatingIfNeeded: piece.count)
    waiting += piece
    var output: [UInt8] = []
    while waiting.count > Self.block {
      output += Self.stored(waiting[..<Self.block], isLast: false)
      waiting.removeFirst(Self.block)
    }
    return output
  }

  /// The last block, the checksum and the length.
  mutating func end() -> [UInt8] {
    let sum = ~check
    let tail = [sum, count].flatMap { number in (0..<4).map { UInt8(truncatingIfNeeded: number >> ($0 * 8)) } }
    return Self.stored(waiting[...], isLast: true) + tail
  }

  private static func stored(_ bytes: ArraySlice<UInt8>, isLast: Bool) -> [UInt8] {
    let length = UInt16(bytes.count)
    let low = UInt8(truncatingIfNeeded: length)
    let high = UInt8(truncatingIfNeeded: length >> 8)
    return [isLast ? 1 : 0, low, high, ~low, ~high] + bytes
  }

  /// The CRC-32 of each byte (RFC 1952, section 8).
  private static let table: [UInt32] = (0..<256).map { index in
    (0..<8).reduce(UInt32(index)) { sum, _ in sum & 1 == 1 ? 0xedb8_8320 ^ (sum >> 1) : sum >> 1 }
  }
}
