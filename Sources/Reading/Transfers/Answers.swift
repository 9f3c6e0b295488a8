import Base
import Glibc

/// Replies to parked reads, stats and opens. Owned by the transfer thread.
final class Answers {
  private let room: ReadingRoom
  private let port: any ReplyPort
  private let downloads: Downloads
  /// Replies are read into this buffer. It is as long as the longest READ.
  let scratch = UnsafeMutableRawBufferPointer.allocate(byteCount: 1 << 20, alignment: 4096)

  init(room: ReadingRoom, port: any ReplyPort, downloads: Downloads) {
    self.room = room
    self.port = port
    self.downloads = downloads
    keepResident(scratch)
  }

  deinit {
    munlock(scratch.baseAddress, scratch.count)
    scratch.deallocate()
  }

  func reply(_ ticket: Ticket, error: Errno) { port.reply(ticket, error: error) }
  /// Answers a read with an error.
  func fail(_ read: ParkedRead, _ error: Errno) {
    room.counters.readFailed(error)
    port.reply(read.ticket, error: error)
  }
  func reply(_ ticket: Ticket, data: UnsafeRawBufferPointer) { port.reply(ticket, data: data) }
  func invalidate(parent: Inode, name: String, isChanged: Bool) {
    port.invalidate(parent: parent, name: name, isChanged: isChanged)
  }

  /// Answers a read whose bytes have all arrived. `source`: from where.
  func answer(_ read: ParkedRead, _ content: Content, from source: ReadSource = .origin) {
    let count = Int(read.range.count)
    if count == 0 { return port.reply(read.ticket, data: UnsafeRawBufferPointer(start: nil, count: 0)) }
    if count <= scratch.count {
      reply(read, through: UnsafeMutableRawBufferPointer(rebasing: scratch[..<count]), content, source)
    } else {
      let long = UnsafeMutableRawBufferPointer.allocate(byteCount: count, alignment: 4096)
      defer { long.deallocate() }
      reply(read, through: long, content, source)
    }
  }

  private func reply(
    _ read: ParkedRead, through buffer: UnsafeMutableRawBufferPointer, _ content: Content, _ source: ReadSource
  ) {
    if content.fill(buffer, at: read.range.start) == .whole {
      room.counters.read(buffer.count, from: source, isScan: read.isScan)
      port.reply(read.ticket, data: UnsafeRawBufferPointer(buffer))
    } else if content.parkAgain(read) {
      downloads.changed(content.key)  // the disk lost the bytes in between
    } else {
      Log.error(
        "\(content.path): the bytes \(read.range), just stored, cannot be read back: \(Errno.current)"
          + room.explanation(of: content.path))
      fail(read, .io)
    }
  }

  /// Answers a stat or an open once the file's length is known. The open is already counted, unless it waited for a
  /// check.
  func answer(_ probe: ParkedProbe, _ content: Content) {
    switch probe.kind {
    case .attributes: port.reply(probe.ticket, attributes: room.attributes(of: content, inode: probe.inode))
    case .open, .check:
      let size = content.guarded.withLock { guarded in
        if probe.kind == .check { guarded.waiters.opened() }
        return guarded.held.size
      }
      let verdict = size.map { size in room.table.withLock { $0.listedSizes.opens(probe.inode, size: size) } }
      if verdict == .stale {
        content.guarded.withLock { $0.waiters.closed() }
        return port.reply(probe.ticket, error: .stale)
      }
      let isGrowing = content.guarded.withLock { guarded in
        if case .growing = guarded.held.length { return true }
        return false
      }
      let isLook = downloads[content.key]?.isLooker(probe.process) ?? false
      if isLook { content.guarded.withLock { $0.waiters.looks(probe.process) } }
      if !port.reply(
        probe.ticket, opened: OpenMode(directIO: isGrowing || isLook || verdict == .direct), inode: probe.inode)
      {
        content.guarded.withLock { $0.waiters.closed() }
      }
    }
  }

  /// Replies `error` to the waiting reads and opens, and the placeholder to the waiting stats. An open that only waited
  /// for whether the file changed succeeds.
  func tell(_ waiting: (probes: [ParkedProbe], reads: [ParkedRead]), _ error: Errno, _ content: Content) {
    for read in waiting.reads { fail(read, error) }
    for probe in waiting.probes {
      switch probe.kind {
      case .open: port.reply(probe.ticket, error: error)
      // Many programs take a failed stat for absence, and a media server then deletes the entry.
      case .attributes: port.reply(probe.ticket, attributes: room.attributes(of: content, inode: probe.inode))
      case .check: answer(probe, content)
      }
    }
  }

  /// Answers the reads that parked after a failed sync, while nobody knew which bytes were left.
  func answerParked(_ content: Content) {
    let (whole, stale) = content.guarded.withLock { guarded -> ([ParkedRead], [ParkedRead]) in
      let whole = guarded.waiters.releaseWhole(guarded.held)
      return (whole, guarded.held.isSuperseded ? guarded.waiters.takeAll().reads : [])
    }
    for read in whole { answer(read, content) }
    for read in stale { fail(read, .stale) }
  }

  /// Makes the kernel drop its cached pages in `range`, for every inode that shows the content.
  func forgetPages(of content: Content, _ range: ByteRange) {
    let inodes = room.table.withLock { $0.inodes(of: content).sorted() }
    for inode in inodes { port.forgetPages(of: inode, range) }
  }
}
