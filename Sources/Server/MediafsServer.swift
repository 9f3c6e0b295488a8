import Base
import Glibc

/// The server process: everything behind `mediafs serve`.
public enum MediafsServer {
  /// Serves the mount that `link` brings; returns the process's exit status once the mount is gone.
  ///
  /// The stop signals must be blocked already (``StopSignals/block()``).
  public static func run(link: HelperLink) -> Int32 {
    do throws(ServerError) {
      try serve(link)
      return 0
    } catch .helperGone {
      return 1  // who could be told is gone
    } catch {
      Log.error(error.description)
      return 1
    }
  }

  private static func serve(_ link: HelperLink) throws(ServerError) {
    let start = try link.receiveStart()
    let request = start.request
    Log.set(level: request.verbosity > 0 ? .debug : .info)
    var ends: [Int32] = [-1, -1]
    guard pipe(&ends) == 0 else { throw .failed("cannot make a pipe: \(Errno.current)") }
    let (stopped, wake) = (ends[0], ends[1])
    let isMounted = Lock(false)
    StopSignals.watch { _ in
      if !isMounted.withLock({ $0 }) { _exit(1) }  // nothing is mounted, and the store is safe against any end
      _ = write(wake, [0], 1)
    }
    try check(manifest: start)
    var log: LogFile?
    let ownLog = request.foreground ? nil : request.store.map { $0 + "/mediafs.log" } ?? "/dev/null"
    if let path = request.logFile ?? ownLog { log = try LogFile(path: path) }
    try link.prepared()

    let mounted = try link.receiveMount()
    isMounted.withLock { $0 = true }
    link.watch {
      do throws(ServerError) { try link.unmountLazily() } catch { Log.error(error.description) }
      _ = write(wake, [0], 1)
    }
    do throws(Errno) {
      var tree = EmptyTree(device: mounted.device.rawValue)
      let request = try tree.initialize()
      if let log {
        do throws(ServerError) {
          try log.takeOver()
          try link.sendLog(STDERR_FILENO)
        } catch { Log.warning(error.description) }
      }
      do throws(ServerError) { try link.ready(initRequest: request) } catch { throw .io }
      Log.info("mounted at \(start.request.mountpoint)")
      try tree.serve(until: stopped)
    } catch {
      throw .failed("cannot serve: \(error)")
    }
    link.close()
  }

  private static func check(manifest start: borrowing HelperLink.Start) throws(ServerError) {
    do throws(Errno) {
      if start.input == nil { _ = try FileDescriptor.open(start.request.manifest, O_RDONLY) }
    } catch {
      throw .failed("cannot read the manifest \(start.request.manifest): \(error)")
    }
  }
}
