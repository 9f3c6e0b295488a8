import Base
import Fetching
import Manifest
import Storing

/// Decides which generation (version of a resource) a response belongs to (P8), and replaces an old generation by a new
/// one. Owned by the transfer thread.
final class Generations {
  /// What the transfer thread does with a response.
  enum Judgement {
    /// Its bytes belong to the download's current content.
    case accepted
    /// The resolver's link leads elsewhere; without a resolver, it counts as a failed attempt.
    case dead(ResolverAsk.Reason, TransferFailure)
    /// Its bytes are discarded.
    case refused
    /// It counts as a failed attempt.
    case failed(TransferFailure)
    /// The store cannot record the generation: the scheduler requests nothing more.
    case broken(String)
  }

  private let room: ReadingRoom
  private let answers: Answers
  private let landing: Landing
  private let second: (any SecondSource)?

  init(room: ReadingRoom, answers: Answers, landing: Landing, second: (any SecondSource)?) {
    self.room = room
    self.answers = answers
    self.landing = landing
    self.second = second
  }

  func judge(_ head: ResponseHead, of download: Download, _ running: Running, _ now: Instant) -> Judgement {
    if case .part(_, total: nil) = head.body {
      // Without the length a range says too little; a whole body shows it by its end.
      download.ranges.foundUnusable(now)
      return .refused
    }
    let found = GenerationCheck.identity(of: head)
    let begun = download.identity
    if download.content.entry.resolver != nil, let dead = otherLength(found, than: begun, download) { return dead }
    guard let begun else {
      if isUnpromised(head.mediaType, download) { return unexpectedPage(head, download) }
      return identify(download, as: found, mirror: running.mirror)
    }
    if download.needsProof, download.mirrors.ofGeneration != running.mirror {
      return judgeSeam(found, than: begun, head, of: download, running, now)
    }
    let known = download.joined ?? begun
    // What a URL brings that the list has no more is judged by itself, and says nothing of the one that it has.
    let isReplaced = download.mirrors.isReplaced(running.mirror)
    let isOtherMirror = download.mirrors.ofGeneration.map { $0 != running.mirror && !isReplaced } ?? false
    // Mirrors share bytes only if the length is equal and a checksum can verify the result (P8).
    let maySplice = download.content.entry.checksum != nil && found.size == known.size && found.size != nil
    if isOtherMirror ? maySplice : GenerationCheck.compare(found, with: known) == .same {
      download.opinion.agreed()
      if isOtherMirror, !Seam.isProved(found, begun), let failure = mixes(download) { return .broken(failure) }
      if isOtherMirror, !isReplaced {
        download.goesOn(at: running.mirror, found)
      } else if !isReplaced {
        came(download, from: running.mirror)
      }
      return .accepted
    }
    if isOtherMirror, !download.hasStored, GenerationCheck.compare(found, with: known) == .same {
      came(download, from: running.mirror)
      return .accepted
    }
    return isReplaced ? .refused : judgeOther(found, than: known, head, of: download, running, now)
  }

  /// Another mirror brings bytes of the version, and not with its strong tag: until the version's checksum was
  /// compared, its tag does not stand for what is stored.
  /// The catalog records this before such a byte is stored. Returns why it could not; nil: it has.
  private func mixes(_ download: Download) -> String? {
    let generation = download.content.guarded.withLock { $0.held.generation }
    guard let generation, !generation.isMixed else { return nil }
    do throws(StoreError) {
      try room.store.changes.apply([.mixed(generation: generation.id)], durably: false)
      download.content.guarded.withLock { $0.held.mixed() }
      return nil
    } catch {
      Log.error("\(download.content.path): the catalog cannot record that another mirror goes on: \(error.message)")
      return error.message
    }
  }

  /// The mirror at `place` describes the version.
  private func came(_ download: Download, from place: Int) {
    download.mirrors.ofGeneration = place
    guard let mirror = download.mirrors.key(of: place) else { return }
    let id = download.content.guarded.withLock { $0.held.came(from: mirror) }
    if let id { room.record(.came(generation: id, from: mirror)) }
  }

  /// Whether the entry's name promises media and a web page came instead: a login page, or an error page with status
  /// 200.
  private func isUnpromised(_ mediaType: String?, _ download: Download) -> Bool {
    let name = download.content.entry.name
    guard let mediaType, GenerationCheck.isPage(mediaType), let dot = name.lastIndex(of: ".") else { return false }
    guard let promised = FileType.mediaType(forExtension: String(name[name.index(after: dot)...])) else { return false }
    return promised.hasPrefix("video/") || promised.hasPrefix("audio/") || promised.hasPrefix("image/")
  }

  private func unexpectedPage(_ head: ResponseHead, _ download: Download) -> Judgement {
    .dead(
      .html,
      TransferFailure(
        kind: .transient, status: 200,
        message:
          "\(download.link == nil ? Log.redacted(url: head.url) : "its link") sent a web page where media was expected: a login page of the network, "
          + "or an expired link"))
  }

  /// A link that leads to another length than is known, or than its resolver said: the resolver is asked once, before
  /// that is believed.
  private func otherLength(
    _ found: GenerationCheck.Identity, than known: GenerationCheck.Identity?, _ download: Download
  ) -> Judgement? {
    guard let size = found.size, let expected = known?.size ?? download.link?.size, size != expected else {
      download.hasAskedForSize = false
      return nil
    }
    if download.hasAskedForSize || GenerationCheck.isPage(found.mediaType ?? "") { return nil }
    download.hasAskedForSize = true
    let message = "its link leads to \(size) bytes, and \(expected) are expected"
    return .dead(.size, TransferFailure(kind: .transient, status: 200, message: message))
  }

  /// Judges the first responses by a new link: whether it leads to the version whose bytes are stored (``Seam``).
  private func judgeSeam(
    _ found: GenerationCheck.Identity, than known: GenerationCheck.Identity, _ head: ResponseHead,
    of download: Download, _ running: Running, _ now: Instant
  ) -> Judgement {
    // What a former link still brings is of use only if it needs no proof. One of the list led to the version.
    if download.mirrors.isReplaced(running.mirror) {
      let isOfVersion =
        download.isRelisted ? GenerationCheck.compare(found, with: known) == .same : Seam.isProved(found, known)
      return isOfVersion ? .accepted : .refused
    }
    if !GenerationCheck.compatible(known.mediaType, found.mediaType) || isUnpromised(found.mediaType, download) {
      return unexpectedPage(head, download)
    }
    if let size = found.size, size == known.size {
      // Also where the list has a checksum: readers have the bytes before the whole is verified.
      if Seam.isProved(found, known) || download.isRelisted && Seam.isDated(found, known) {
        if running.mirror == download.mirrors.current { download.joins(found) }
        download.opinion.agreed()
        return .accepted
      }
      let stored = download.content.guarded.withLock { $0.held.stored }
      download.seam.begin(found, running.mirror, stored: stored, size: size)
      if !download.seam.isDifferent {
        guard running.kind == .seam, case .part = head.body else {
          // The windows are asked for by ranges, which this origin does not give.
          if running.kind == .seam { download.seam.differed() }
          return .refused
        }
        return .accepted
      }
    }
    return judgeOther(found, than: known, head, of: download, running, now)
  }

  /// Judges a response of another generation than the known one. It is believed when a second response agrees and its
  /// type fits. Until then no stored byte is at risk.
  private func judgeOther(
    _ found: GenerationCheck.Identity, than known: GenerationCheck.Identity, _ head: ResponseHead,
    of download: Download, _ running: Running, _ now: Instant
  ) -> Judgement {
    if !GenerationCheck.compatible(known.mediaType, found.mediaType) || isUnpromised(found.mediaType, download) {
      return unexpectedPage(head, download)
    }
    let redirect = head.isRedirected ? head.url : nil
    switch download.opinion.heard(found, isConfirmation: running.kind == .confirm, redirect: redirect, now: now) {
    case .wait: return .refused
    case .ask:
      Log.info("\(download.content.path): the origin seems to have another version; asking once more")
      return .refused
    case .fickle:
      return .failed(
        TransferFailure(
          kind: .transient, status: 200, message: "the origin sends another version of the file with each response"))
    case .believe:
      do {
        try supersede(download, by: found, running)
        download.opinion.replaced(known, now: now)
        return .accepted
      } catch {
        return .broken(error.message)
      }
    }
  }

  /// Begins the resource's generation, at the first response.
  /// `mirror`: which one told it; nil: no origin did.
  func identify(_ download: Download, as found: GenerationCheck.Identity, mirror: Int?) -> Judgement {
    let content = download.content
    do {
      let generation = try record(of: found, download, mirror: mirror)
      let file = begin(generation.id, download)
      download.begins(at: mirror)
      let now = room.clock.now
      let begun = content.guarded.withLock { guarded -> (FileState.Identified, [ParkedProbe], [ParkedRead])? in
        guard let identified = guarded.held.identified(generation, file: file) else { return nil }
        // The open that follows a stat comes at once, and would wait for a check.
        if mirror != nil { guarded.held.checked(at: now) }
        let released = guarded.waiters.identified(guarded.held)
        guarded.waiters.opened(released.probes.count { $0.kind == .open })
        return (identified, released.probes, released.reads)
      }
      guard let (identified, probes, reads) = begun else { return .refused }
      if let useless = identified.useless { forget(useless, of: content) }
      room.table.withLock { $0.unrecorded[content.key] = generation }
      room.record(.learned(generation), promptly: true)
      for probe in probes { answers.answer(probe, content) }
      for read in reads { answers.answer(read, content) }
      room.happened(.new, to: content, bytes: generation.size)
      return .accepted
    } catch {
      let message = "the catalog cannot record the file's version: \(error.message)"
      Log.error("\(content.path): \(message)")
      return .broken(message)
    }
  }

  private func record(
    of found: GenerationCheck.Identity, _ download: Download, mirror: Int?
  ) throws(StoreError) -> GenerationRecord {
    var record = GenerationRecord(
      id: try room.store.changes.nextID(), key: download.key, validators: found.validators, size: found.size,
      mediaType: found.mediaType)
    record.continues = download.wish.rest
    record.mirror = mirror.flatMap { download.mirrors.key(of: $0) }
    return record
  }

  /// Creates the partial file of a new generation; nil when that fails: reads are then answered from memory.
  private func begin(_ id: Int64, _ download: Download) -> ServedFile? {
    do throws(StoreError) {
      return ServedFile(partial: try room.store.partials.open(id, create: true))
    } catch {
      Log.error("\(download.content.path): \(error.message)")
      landing.cannotStore(download, error.errno)
      return nil
    }
  }

  private func forget(_ generation: Int64, of content: Content) {
    room.record(.forgotten(generation: generation))
    do throws(StoreError) {
      try room.removePartial(generation)
    } catch {
      Log.warning("\(content.path): an unused partial file stays until the next mount: \(error.message)")
    }
  }

  /// Replaces the old generation by a new one. The entries get new inodes; the old bytes stay until their last handle
  /// is closed. `running` is the transfer that brings the new version; nil when there is none: then only the inodes are
  /// new, and what happened to the file was told before.
  func supersede(
    _ download: Download, by found: GenerationCheck.Identity, _ running: Running?
  ) throws(StoreError) {
    let old = download.content
    let (known, isPinned) = old.guarded.withLock { ($0.held.generation, $0.held.isPinned) }
    guard let known else { throw StoreError(kind: .invalid, message: "\(old.path): it has no version to replace") }
    download.opinion.superseded()
    do {
      let record = try record(of: found, download, mirror: running?.mirror)
      let file = begin(record.id, download)
      let renumbered = try room.store.changes.supersede(known, by: record)
      let new = Content(replacing: old, held: FileState(beginning: record, file: file, isPinned: isPinned))
      room.table.withLock { table in
        table.departures += 1
        table.current[download.key] = new
        for change in renumbered { table.lead(change.new, to: new) }
      }
      download.content = new
      download.ranges.foundWorking()
      download.begins(at: running?.mirror)
      (download.wish.tailDone, download.second) = (false, nil)
      let waiting = old.guarded.withLock { guarded in
        guarded.held.superseded()
        return guarded.waiters.takeAll()
      }
      for read in waiting.reads { answers.fail(read, .stale) }
      for probe in waiting.probes { answers.reply(probe.ticket, error: .stale) }
      for change in renumbered {
        answers.invalidate(parent: change.parent, name: change.name, isChanged: running != nil)
      }
      download.cancelAll(except: running?.active.id)
      var reason = "a new inode: the old one has other bytes than the origin"
      if running != nil {
        reason = "a new version at the origin"
        (download.distrustsSecond, download.toldSecondAt) = (false, nil)
        room.counters.add(1, to: .versions)
        room.happened(.changed, to: new, bytes: record.size, reason)
      }
      Log.info("\(old.path): \(reason) (generation \(record.id) after \(known.id))")
      second?.close(known.id, isReplaced: true)
      room.dropIfUnused(old)
    } catch {
      Log.error("\(old.path): the catalog cannot record the new version: \(error.message)")
      throw error
    }
  }

  /// Gives the file of `inode` another inode under which it can be opened, and uncounts the open. The caller answers
  /// that open with ESTALE, so that the kernel looks the name up again.
  ///
  /// A copy that a user changed may have left its bytes in the page cache under every inode of the resource: all inodes
  /// are replaced, with a new content. Otherwise only this inode is useless, because its open handles read from a
  /// copy that is gone. Readers of the resource under other names go on.
  func renew(_ download: Download, _ content: Content, _ inode: Inode) throws(StoreError) {
    let (isOld, isModified) = content.guarded.withLock { guarded in
      guarded.waiters.closed()
      return (guarded.held.isSuperseded, guarded.held.holding == .modified)
    }
    if isOld || download.content !== content {
      room.dropIfUnused(content)
    } else if isModified, let same = download.identity {
      try supersede(download, by: same, nil)
    } else {
      renumber(content, inode)
    }
  }

  /// Gives the same content another inode.
  private func renumber(_ content: Content, _ inode: Inode) {
    do {
      // nil: another open was faster, or the entry is no longer listed.
      guard let change = try room.store.changes.renumber(inode, of: content.key) else { return }
      room.table.withLock { table in
        if table.current[content.key] === content { table.lead(change.new, to: content) }
      }
      answers.invalidate(parent: change.parent, name: change.name, isChanged: false)
      Log.info("\(content.path): a new inode, because open handles of the old one read from a copy that is gone")
    } catch {
      Log.error("\(content.path): it cannot be given a new inode, so it cannot be opened for now: \(error.message)")
    }
  }

  /// How many bytes of the head are enough to tell a file's type. A background request for a size fetches as many.
  static let glance: Int64 = 4 << 10

  /// Records a name's missing extension, which players need. The name shows it from the next mount on.
  func learnExtension(_ download: Download) {
    let content = download.content
    guard content.entry.mayGainExtension else { return }
    let (file, generation, head) = content.guarded.withLock { guarded in
      (guarded.held.file, guarded.held.generation, guarded.held.stored.runEnd(from: 0))
    }
    guard let file, let generation, head > 0 else { return }
    let buffer = UnsafeMutableRawBufferPointer(rebasing: answers.scratch[..<Int(min(head, Self.glance))])
    guard file.fill(buffer, at: 0) else { return }
    let found = FileType.fileExtension(
      head: UnsafeRawBufferPointer(buffer), suggestedName: download.suggestedName, mediaType: generation.mediaType)
    if let found { room.record(.gainedExtension(download.key, found)) }
  }
}
