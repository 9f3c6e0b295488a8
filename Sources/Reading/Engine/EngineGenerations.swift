import Base
import Fetching
import Manifest
import Storing

/// Which version of a resource a response belongs to (P8).
extension Engine {
  enum Judgement {
    /// Its bytes are of the source's current content.
    case accepted
    /// Its bytes are not to be used.
    case refused
  }

  /// How often a resource may give a new answer each time before it counts as a failure.
  private static let mostSuspects = 6
  /// A version that was given up less than so many seconds ago needs more than one answer that agrees: two servers
  /// behind one name may differ, and each change costs all that is stored.
  private static let formerSeconds = 600.0
  private static let agreeingWhenFormer = 6

  func judge(_ head: ResponseHead, of source: Source, _ running: Running, _ now: Instant) -> Judgement {
    if case .part(_, total: nil) = head.body {
      // Without the length a range says too little; the whole body has an end.
      source.gaveUpRanges(now)
      return .refused
    }
    let found = GenerationCheck.identity(of: head)
    let known = source.content.guarded.withLock { guarded in
      guarded.generation.map {
        GenerationCheck.Identity(validators: $0.validators, size: $0.size, mediaType: $0.mediaType)
      }
    }
    guard let known else {
      if isUnpromised(head.mediaType, source) { return distrust(source, running, head, now) }
      return identify(source, as: found, running) ? .accepted : .refused
    }
    let isOtherMirror = source.generationMirror.map { $0 != running.mirror } ?? false
    // Mirrors share bytes only with equal length and a checksum, which will tell (P8).
    let maySplice = source.content.source.checksum != nil && found.size == known.size && found.size != nil
    if isOtherMirror ? maySplice : GenerationCheck.compare(found, with: known) == .same {
      source.suspect = nil
      source.generationMirror = running.mirror
      return .accepted
    }
    if isOtherMirror, !hasStored(source), GenerationCheck.compare(found, with: known) == .same {
      source.generationMirror = running.mirror
      return .accepted
    }
    return suspect(source, found, known, running, head, now)
  }

  func hasStored(_ source: Source) -> Bool {
    source.content.guarded.withLock { !$0.state.stored.isEmpty }
  }

  /// The entry's name promises media and a page of HTML came: a login page, an error page that says 200.
  private func isUnpromised(_ mediaType: String?, _ source: Source) -> Bool {
    let name = source.content.source.name
    guard let mediaType, GenerationCheck.isPage(mediaType), let dot = name.lastIndex(of: ".") else { return false }
    guard let promised = FileType.mediaType(forExtension: String(name[name.index(after: dot)...])) else { return false }
    return promised.hasPrefix("video/") || promised.hasPrefix("audio/") || promised.hasPrefix("image/")
  }

  private func distrust(_ source: Source, _ running: Running, _ head: ResponseHead, _ now: Instant) -> Judgement {
    let failure = TransferFailure(
      kind: .transient, status: 200,
      message: "\(Log.redacted(url: head.url)) sent a web page where media was expected: a login page of the network, "
        + "or an expired link")
    failed(source, running, failure, now)
    return .refused
  }

  /// The first answer about a resource: its generation begins. False when it cannot be stored.
  private func identify(_ source: Source, as found: GenerationCheck.Identity, _ running: Running) -> Bool {
    let content = source.content
    do {
      var record = GenerationRecord(
        id: try store.catalog.nextID(), key: source.key, validators: found.validators, size: found.size,
        mediaType: found.mediaType)
      record.continues = source.continues
      let file = begin(record.id, source)
      source.generationMirror = running.mirror
      let length: Length = found.size.map { .known($0) } ?? .growing(0)
      let generation = record
      let (released, abandoned) = content.guarded.withLock { guarded in
        let abandoned = guarded.abandoned
        guarded.abandoned = nil
        guarded.generation = generation
        guarded.file = file
        let released = guarded.state.identified(length)
        guarded.state.opens += released.probes.count { $0.kind == .open }
        return (released, abandoned)
      }
      if let abandoned { abandon(abandoned) }
      keeper.record(.learned(record), promptly: true)
      for probe in released.probes { answer(probe, content) }
      for read in released.reads { answer(read, content) }
      return true
    } catch {
      let message = "cannot begin to store it: \(error.message)"
      Log.error("\(content.path): \(message)")
      fail(source, .io, message)
      return false
    }
  }

  /// The partial file of a new generation; nil when it cannot be made: then it is played without being stored.
  private func begin(_ id: Int64, _ source: Source) -> ServedFile? {
    do throws(StoreError) {
      return ServedFile(partial: try PartialFile(in: store.folder, id: id, create: true))
    } catch {
      Log.error("\(source.content.path): \(error.message)")
      cannotStore(source, error.errno)
      return nil
    }
  }

  private func abandon(_ generation: Int64) {
    keeper.record(.forgotten(generation: generation))
    do throws(StoreError) {
      _ = try PartialFile.remove(generation, in: store.folder)
    } catch {
      Log.warning("generation \(generation), of no use any more, goes at the next mount: \(error.message)")
    }
  }

  /// Answers a stat or an open whose file is known now. An open is counted already.
  func answer(_ probe: ParkedProbe, _ content: Content) {
    switch probe.kind {
    case .attributes: port.reply(probe.ticket, attributes: attributes(of: content, inode: probe.inode))
    case .open:
      let isGrowing = content.guarded.withLock { guarded in
        if case .growing = guarded.state.length { return true }
        return false
      }
      if !port.reply(probe.ticket, opened: OpenMode(directIO: isGrowing), inode: probe.inode) {
        content.guarded.withLock { $0.state.opens -= 1 }
      }
    }
  }

  /// What stat shows of a file in memory: the real size when it is known, else a placeholder that is not 0.
  func attributes(of content: Content, inode: Inode) -> Attributes {
    content.guarded.withLock { guarded in
      let modified = guarded.generation?.validators.lastModified ?? mountedAt
      if let size = guarded.state.size {
        return Attributes(inode: inode, isFolder: false, size: size, modified: modified, isFinal: true)
      }
      return Attributes(inode: inode, isFolder: false, size: 1, modified: modified, isFinal: false)
    }
  }

  /// A response that is not of the known generation. Believed when a second one agrees, its type fits, and no stored
  /// byte is at stake until then.
  private func suspect(
    _ source: Source, _ found: GenerationCheck.Identity, _ known: GenerationCheck.Identity, _ running: Running,
    _ head: ResponseHead, _ now: Instant
  ) -> Judgement {
    if !GenerationCheck.compatible(known.mediaType, found.mediaType) || isUnpromised(found.mediaType, source) {
      return distrust(source, running, head, now)
    }
    source.suspectAnswers += 1
    if source.suspect == found {
      // What was asked for before the doubt is no second opinion.
      guard running.kind == .confirm else { return .refused }
      source.agreeing -= 1
      if source.agreeing > 0 { return .refused }
      if supersede(source, by: found, running) {
        source.former = source.former.filter { now.seconds(since: $0.value) < Self.formerSeconds }
        source.former[known] = now
        return .accepted
      }
      return .refused
    }
    if source.suspectAnswers > Self.mostSuspects {
      source.suspect = nil
      let failure = TransferFailure(
        kind: .transient, status: 200, message: "the origin gives another version of the file with every answer")
      failed(source, running, failure, now)
      return .refused
    }
    Log.info("\(source.content.path): the origin seems to have another version; asking once more")
    source.suspect = found
    let isFormer = source.former[found].map { now.seconds(since: $0) < Self.formerSeconds } ?? false
    source.agreeing = isFormer ? Self.agreeingWhenFormer : 1
    return .refused
  }

  /// A new generation takes the old one's place: new inodes, the old bytes stay until their last handle is closed.
  func supersede(_ source: Source, by found: GenerationCheck.Identity, _ running: Running?) -> Bool {
    let old = source.content
    source.suspect = nil
    source.suspectAnswers = 0
    do {
      var record = GenerationRecord(
        id: try store.catalog.nextID(), key: source.key, validators: found.validators, size: found.size,
        mediaType: found.mediaType)
      record.continues = source.continues
      let file = begin(record.id, source)
      let renumbered = try store.catalog.supersede(source.key, by: record)
      var guarded = Content.Guarded()
      guarded.generation = record
      guarded.file = file
      guarded.isPinned = old.guarded.withLock(\.isPinned)
      guarded.state.length = found.size.map { .known($0) } ?? .growing(0)
      let new = Content(replacing: old, guarded: guarded)
      table.withLock { table in
        table.departures += 1
        table.current[source.key] = new
        for change in renumbered { table.contents[change.new] = new }
      }
      source.content = new
      source.ranges = .assumed
      source.mismatches = 0
      source.generationMirror = running?.mirror
      let (waiting, oldID) = old.guarded.withLock { guarded in
        guarded.state.isSuperseded = true
        guarded.state.memory = MemoryWindow()
        return (guarded.state.takeAll(), guarded.generation?.id)
      }
      for read in waiting.reads { port.reply(read.ticket, error: .stale) }
      for probe in waiting.probes { port.reply(probe.ticket, error: .stale) }
      for change in renumbered { port.invalidate(parent: change.parent, name: change.name) }
      for other in source.transfers where other.active.id != running?.active.id { cancel(other.active.id, of: source) }
      let reason =
        running == nil ? "a new inode, as the old one has other bytes than the origin" : "a new version at the origin"
      Log.info("\(old.path): \(reason) (generation \(record.id) after \(oldID ?? 0))")
      dropIfUnused(old)
      return true
    } catch {
      Log.error("\(old.path): the new version cannot be taken in: \(error.message)")
      fail(source, .io, error.message)
      return false
    }
  }

  /// Answers an open of `inode` with ESTALE, and uncounts it, when its file has another inode under which it can be
  /// opened: the kernel then looks the name up again.
  ///
  /// A copy that a user changed may have left its bytes in the page cache, under every inode of the resource: all get
  /// new ones, for a new content. Else only this one is of no more use (its open handles read from a copy that is
  /// gone); who reads the resource under another name goes on.
  func renew(_ content: Content, _ inode: Inode, _ ticket: Ticket) {
    let source = source(of: content)
    let (isOld, isTouched, generation) = content.guarded.withLock { guarded in
      guarded.state.opens -= 1
      return (guarded.state.isSuperseded, guarded.isTouched, guarded.generation)
    }
    if isOld || source.content !== content {
      dropIfUnused(content)
    } else if isTouched, let generation {
      let same = GenerationCheck.Identity(
        validators: generation.validators, size: generation.size, mediaType: generation.mediaType)
      _ = supersede(source, by: same, nil)  // where it fails it has told why; the open fails all the same
    } else {
      renumber(content, inode)
    }
    port.reply(ticket, error: .stale)
  }

  /// Another inode for the same content.
  private func renumber(_ content: Content, _ inode: Inode) {
    do {
      // nil: another open was faster, or the entry is no longer listed.
      guard let change = try store.catalog.renumber(inode, of: content.key) else { return }
      table.withLock { table in
        if table.current[content.key] === content { table.contents[change.new] = content }
      }
      port.invalidate(parent: change.parent, name: change.name)
      Log.info("\(content.path): a new inode, as open handles of the old one read from a copy that is gone")
    } catch {
      Log.error("\(content.path): it cannot be given a new inode, so it cannot be opened for now: \(error.message)")
    }
  }

  /// Gives a name its extension, from the next mount on: players choose by it.
  func learnExtension(_ source: Source) {
    let content = source.content
    guard content.source.mayGainExtension else { return }
    let (file, generation, head) = content.guarded.withLock { guarded in
      (guarded.file, guarded.generation, guarded.state.stored.runEnd(from: 0))
    }
    guard let file, let generation, head > 0 else { return }
    let buffer = UnsafeMutableRawBufferPointer(rebasing: scratch[..<Int(min(head, Self.glance))])
    guard file.fill(buffer, at: 0) else { return }
    let found = FileType.fileExtension(
      head: UnsafeRawBufferPointer(buffer), suggestedName: source.suggestedName, mediaType: generation.mediaType)
    if let found { keeper.record(.gainedExtension(source.key, found)) }
  }
}
