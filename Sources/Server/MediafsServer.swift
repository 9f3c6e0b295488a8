import Base
import CSystem
import Control
import Fetching
import Glibc
import Mount
import Reading
import Sharing
import Storing

/// The server process: everything behind `mediafs serve`.
package enum MediafsServer {
  /// Enough open files for a media server, a few players and every connection, with room to spare.
  package static let enoughDescriptors = 1024

  /// Serves the mount that `link` brings. Returns the process's exit status after the mount has ended.
  ///
  /// The stop signals must be blocked already (``StopSignals/block()``).
  package static func run(link: HelperLink, launcher: LauncherLink?) -> Int32 {
    do throws(ServerError) {
      return try serve(link, launcher)
    } catch .helperGone {
      return 1  // nobody is left to tell
    } catch {
      Log.error(error.description)
      let why = error
      do throws(ServerError) { try link.failed(why.description) } catch { Log.debug("the link has ended: \(error)") }
      return 1
    }
  }

  /// Serves until the end of the mount, or of this server. Returns the exit status.
  private static func serve(_ link: HelperLink, _ launcher: LauncherLink?) throws(ServerError) -> Int32 {
    let descriptors = csystem_raise_descriptor_limit()
    let start = try link.receiveStart()
    let asked = start.request
    Log.set(level: asked.log.verbosity > 0 ? .debug : .info)
    if descriptors < enoughDescriptors {
      Log.warning(
        "the server can open only \(descriptors) files at once, and reads beyond that fail: raise the limit "
          + "(ulimit -n, or LimitNOFILE= of a systemd unit)")
    }
    let session = Lock<FuseSession?>(nil)
    let reload = Lock<ListKeeper?>(nil)
    let goesOn = start.goesOn
    let rootWaits = start.rootWaits
    let places = start.rootWaits ? try ServerPlaces(asked, goesOn: goesOn) : nil
    if !goesOn {
      try places?.check(program: asked.onComplete ?? [], of: MountOption.onComplete)
      for resolver in asked.resolvers { try places?.check(program: resolver.words, of: MountOption.resolver) }
    }
    // What the server opens outside of these places, it opens before it is restricted to them.
    let named = try openLog(goesOn: goesOn) { () throws(ServerError) in
      try asked.log.file.map { (path) throws(ServerError) in
        try LogFile(path: path, allowsDevice: true, opensOlder: rootWaits)
      }
    }
    var granted = asked
    if named.lack != nil { granted.log.file = nil }
    let request = granted
    let opened =
      start.rootWaits && !goesOn && request.opensList ? try ManifestImport.openForRoot(request, start.input) : nil
    let sharing: MountSharing?
    do throws(ServerError) {
      sharing = try request.share.place.map { (place) throws(ServerError) in try MountSharing(request.share, place) }
    } catch {
      // The readers of a mount that goes on need their files, shared or not.
      guard goesOn else { throw error }
      Log.error("\(error.description); until the next mount, every file comes from its origin")
      sharing = nil
    }
    // No thread may exist before: Landlock restricts only the thread that asks for it, and those that it starts.
    let rights = try places.map { (places) throws(ServerError) in try Confinement.begin(places) }
    let launcher = try LauncherLink.begin(launcher, for: request, goesOn: goesOn)
    let isManaged = start.isManaged
    let teller = isManaged ? ServiceTeller(link) : nil
    let handover = Handover(link, failedUpgrade: start.failedUpgrade) {
      session.withLock { $0 }?.stop()
    }
    StopSignals.watch { number in
      if number == SIGHUP {
        guard let list = reload.withLock({ $0 }) else {
          teller?.reloading(false)
          return Log.info("SIGHUP: the list is being read already")
        }
        Log.info("SIGHUP: the server reads the list again")
        return list.reloadSoon()
      }
      handover.cancel()
      // Before it serves, no data can be lost: the store survives any end of the process. Status 0 ends a mount that
      // had a server before; another status would bring the next one.
      guard let running = session.withLock({ $0 }) else { _exit(goesOn ? 0 : 1) }
      running.stop()
    }

    let store = try OpenedStore(
      request, input: start.input, list: opened, goesOn: goesOn, held: start.held, rootWaits: rootWaits,
      isService: isManaged, transfers: transferOptions(request, nil))
    defer { store.lists.documents.stop() }
    let settings = SettingService(request: request, maximumSize: store.maximumSize, catalog: store.catalog)
    let loop: TransferLoop
    let fileSystem: MediaFileSystem
    let memory: SessionMemory
    let member: FleetMember.Setup?
    do {
      member = try sharing?.member(store.catalog, fresh: request.downloads.fresh)
      memory = try SessionMemory(start.takeMemory())
      let limits = try settings.limits()
      loop = try TransferLoop(options: transferOptions(request, limits))
      fileSystem = try MediaFileSystem(
        store: store.access, options: readingOptions(request, limits), beginning: memory.beginning, wake: loop.waking)
    } catch {
      throw .failed("\(error)")
    }
    if let lack = fileSystem.storeUse.lack { Log.warning("the store is full: \(lack.advice)") }
    if memory.catalogID != 0 { try store.refuseAnother(than: memory.catalogID) }
    if memory.beginning == nil { memory.remember(fileSystem.beginning, catalogID: store.catalogID) }
    let kept = try openLog(goesOn: goesOn) { () throws(ServerError) in
      if let log = named.log { return log }
      return try storeLog(request, store)
    }
    let log = kept.log
    try link.hold(store.mount)
    try link.prepared(library: store.library.path)

    let notices = try link.receiveNotices()
    let backing = try link.receiveBacking()
    let waking = try link.receiveWaking()
    let mounted = try link.receiveMount()
    let fuse: FuseSession
    let access = request.access
    do {
      fuse = try FuseSession(
        device: mounted.takeDevice(), memory: memory, notices: notices, backing: backing, waking: waking,
        fileSystem: fileSystem,
        options: Mount.MountOptions(
          uid: access.uid, gid: access.gid, umask: access.umask, mountedAt: fileSystem.beginning.mountedAt,
          passthroughDepth: store.library.isStacked ? 2 : 1))
    } catch {
      throw .failed("cannot serve the mount: \(error)")
    }
    session.withLock { $0 = fuse }
    link.watch(onVerdict: handover.take) {
      if isManaged { return handover.take(nil) }  // the service manager keeps the mount for the next helper
      do throws(ServerError) { try link.unmountLazily() } catch { Log.error(error.description) }
      fuse.stop()
    }
    let lists = store.lists
    fileSystem.watchFolders(lists.folders)
    fileSystem.goOn(with: fuse.opens)
    for request in fuse.refused { fileSystem.refuses(request.text, of: request.inode) }
    let numbers = MetricsSource(
      fileSystem: fileSystem, catalog: store.catalog, folder: store.folder, isFirst: !goesOn,
      sharing: member?.report)
    let metricsFile = try request.metricsFile.map { (path) throws(ServerError) in
      try MetricsFile(path: path, goesOn: goesOn) { try numbers.text() }
    }
    let events = EventHub()
    fileSystem.tell(
      EventTeller(hub: events, launcher: request.onComplete == nil ? nil : launcher, library: store.library.path))
    if let launcher, !request.resolvers.isEmpty {
      launcher.hear { fileSystem.heard($0) }
      fileSystem.resolve(with: launcher)
    }
    fileSystem.start(keeperRecord: memory.keeperRecord, finisherRecord: memory.finisherRecord)
    do throws(FetchError) {
      try loop.run(record: memory.transfersRecord) { [wake = loop.waking] commands in
        guard let member else { return fileSystem.makeClient(port: fuse, service: commands) }
        return FleetClient(member, commands, wake: wake) { service, second in
          fileSystem.makeClient(port: fuse, service: service, second: second)
        }
      }
    } catch { throw .failed("\(error)") }
    let facts = MountFacts(request, store)
    var listed = request
    listed.lists = lists
    let list = try ListKeeper(
      listed, helper: rootWaits ? link : nil, imported: store.listMark, store.catalog,
      TreeUpdate(
        prepare: { fuse.prepare($0) },
        announce: { changes in
          // First: who is told of a file reads it at once.
          fileSystem.listChanged(changes.resources)
          fuse.announce(changes.tree)
        }, forget: { fuse.forget($0) }, settle: { fuse.settle() }), reloading: { teller?.reloading($0) })
    reload.withLock { $0 = list }
    lists.folders.connect(
      answer: { ticket, error in if let error { fuse.reply(ticket, error: error) } else { fuse.replyFolder(ticket) } },
      news: { list.look() }, settle: { fuse.settle(atMost: request.downloads.timeout) })
    let control = try listen(
      request, store, settings, fileSystem, handover, facts, numbers, events, list, stop: { fuse.stop() })
    let failure = Lock<ServerError?>(nil)
    let housekeeper = try Housekeeper(
      reconnect: { fileSystem.reconnect() },
      everyRound: {
        do throws(ServerError) {
          if let log { _ = try log.rotateIfFull() }
        } catch { Log.warning(error.description) }
        list.silence.tell()
        teller?.tell(fileSystem, store.catalog, problem: list.problem)
      })
    do throws(MountError) {
      try fuse.run {
        do throws(ServerError) {
          if let log {
            try log.takeOver()
            try link.sendLog(STDERR_FILENO)
          }
          try link.ready()
          handover.serve()
          Log.info(goesOn ? "the next server of \(request.mountpoint) serves" : "mounted at \(request.mountpoint)")
          if let rights { Log.info(rights) }
          for lack in [named.lack, kept.lack].compactMap({ $0 }) {
            Log.warning("\(lack); until the next mount, the log goes to \(log == nil ? "standard error" : "the store")")
          }
          do throws(StoreError) { try store.catalog.settle() } catch { Log.warning(error.message) }
          fileSystem.resume()
          if goesOn { announceAgain(store.catalog, to: fuse) }
          list.start()
          teller?.tell(fileSystem, store.catalog, problem: nil)
          metricsFile?.start()
        } catch {
          failure.withLock { $0 = error }
          fuse.stop()
        }
      }
    } catch {
      failure.withLock { $0 = .failed("cannot serve the mount: \(error)") }
    }
    housekeeper.stop()
    list.stop()
    lists.documents.stop()
    metricsFile?.stop(isUnmounting: !handover.isAgreed)
    fileSystem.beginEnding()
    // The listeners of a server that hands over listen to the next one.
    if !handover.isAgreed { events.close() }
    control.stop()
    loop.stop()
    fileSystem.stop()
    do throws(StoreError) { try store.catalog.close() } catch { Log.error(error.message) }
    // At an upgrade, readers wait until this server has ended: it waits for no program.
    launcher?.end(waiting: !handover.isAgreed)
    link.close()
    if let failure = failure.withLock({ $0 }) { throw failure }
    if handover.isAgreed {
      Log.info("the server of \(request.mountpoint) has saved its data for the new program")
      return HelperMessage.handedOver
    }
    Log.info("unmounted \(request.mountpoint)")
    return 0
  }

  /// The server before may have ended between an import and its announcement.
  private static func announceAgain(_ catalog: Catalog, to fuse: FuseSession) {
    do throws(StoreError) { fuse.forget(try catalog.lastChanges()) } catch { Log.warning(error.message) }
  }

  private static func transferOptions(_ request: MountRequest, _ limits: ReadingLimits?) -> TransferOptions {
    var options = TransferOptions()
    let origins = request.origins
    options.headers = origins.headers
    options.certificateFile = origins.certificateFile
    options.netrcFile = origins.netrcFile
    if let limits { options.rates = limits.rates }
    return options
  }

  private static func readingOptions(_ request: MountRequest, _ limits: ReadingLimits) -> ReadingOptions {
    var options = ReadingOptions()
    let downloads = request.downloads
    options.continuation = downloads.continuation
    options.next = downloads.next
    options.timeout = downloads.timeout
    options.fresh = downloads.fresh
    options.shares = request.share.place != nil
    options.limits = limits
    options.minimumFree = request.storage.minFree
    options.mountpoint = request.mountpoint
    return options
  }

  /// Opens a log, or says why not: the readers of a mount that goes on need their files, logged or not.
  private static func openLog(
    goesOn: Bool, _ open: () throws(ServerError) -> LogFile?
  ) throws(ServerError) -> (log: LogFile?, lack: String?) {
    do throws(ServerError) { return (try open(), nil) } catch {
      guard goesOn else { throw error }
      return (nil, error.description)
    }
  }

  /// The log of a server without `--log-file`: `mediafs.log` in the store, or (in the foreground) none.
  private static func storeLog(_ request: MountRequest, _ store: OpenedStore) throws(ServerError) -> LogFile? {
    if request.foreground { return nil }
    return try LogFile(path: store.folder.path + "/mediafs.log", allowsDevice: false)
  }

  private static func listen(
    _ request: MountRequest, _ store: OpenedStore, _ settings: SettingService, _ fileSystem: MediaFileSystem,
    _ handover: Handover, _ facts: MountFacts, _ numbers: MetricsSource, _ events: EventHub,
    _ list: ListKeeper, stop: @escaping @Sendable () -> Void
  ) throws(ServerError) -> ControlListener {
    let identity = ServerIdentity(pid: getpid(), mountpoint: request.mountpoint, program: "mediafs \(mediafsVersion)")
    let service = ControlService(
      fileSystem: fileSystem, catalog: store.catalog, library: store.library, settings: settings,
      handover: handover, facts: facts, numbers: numbers, events: events, list: list, stop: stop)
    do throws(ControlFailure) {
      return try ControlListener(store: store.folder.path, identity: identity, handler: service)
    } catch {
      throw .failed(error.message)
    }
  }
}
