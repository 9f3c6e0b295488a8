import Base
import CFuse
import Glibc
import Reading

// The threads. `run`'s own thread answers INIT, starts the others and waits for their end; `threads` loop threads block
// in read(2) on the device, which measured half the latency of waiting in epoll (one wake-up instead of one for all,
// and no second call). What blocks there is woken for `stop` by a signal whose handler does nothing.

/// How the loop threads ended.
struct Endings {
  var isStopping = false
  /// Threads that serve, by which they can be signalled.
  var running: [pthread_t] = []
  /// The first failure that was not the end of the mount.
  var failure: MountError?
}

/// SIGURG: ignored by default, so a stray one does no harm, and nothing here uses it for its own sake.
private let wakeUpSignal = SIGURG

private func ignoreSignal(_ number: Int32) {}

extension FuseSession {
  /// Makes ``run(ready:)`` end soon, without unmounting. From any thread, any number of times.
  package func stop() {
    endings.withLock { $0.isStopping = true }
    wakeUp.signal()
  }

  /// Serves until the mount is gone or ``stop()`` is called. To be called once, on a thread that may wait.
  ///
  /// `ready` is called once on this thread, after INIT was answered, with the raw bytes of the INIT request. It is not
  /// called when the mount ends before.
  package func run(ready: @escaping @Sendable ([UInt8]) -> Void) throws(MountError) {
    defer { closeDevice() }
    guard try handshake(ready) else { return }
    installWakeUpSignal()
    let notifier = OwnedThread(name: "fuse-notify") { self.notify() }
    let threads = (0..<max(1, options.threads)).map { index in
      OwnedThread(name: "fuse-\(index)") { self.serve() }
    }
    while !endings.withLock({ $0.isStopping }) { wakeUp.wait() }
    // The notifier first, while requests are still served: the kernel may hold it until a lookup is answered.
    endNotifier()
    notifier.join()
    endThreads()
    for thread in threads { thread.join() }
    if let failure = endings.withLock({ $0.failure }) { throw failure }
  }

  // MARK: Beginning

  /// Answers INIT; false when the mount ended or `stop` came before it.
  private func handshake(_ ready: ([UInt8]) -> Void) throws(MountError) -> Bool {
    let thread = LoopThread(maxRead: options.maxRead)
    while !isInitialised {
      var waiting = [
        pollfd(fd: descriptor, events: Int16(POLLIN), revents: 0),
        pollfd(fd: wakeUp.rawValue, events: Int16(POLLIN), revents: 0),
      ]
      do throws(Errno) {
        _ = try retrying { poll(&waiting, 2, -1) }
      } catch { throw .device("poll", error) }
      if endings.withLock({ $0.isStopping }) { return false }
      switch receive(thread) {
      case .request(let bytes):
        guard operation(of: bytes) == initOperation else { throw .handshake }
        let copy = Array(bytes)
        isOfferedPassthrough = offersPassthrough(bytes)
        process(bytes, thread)
        if fuse_session_exited(handle) != 0 { throw .handshake }
        if isInitialised { ready(copy) }
      case .again: continue
      case .unmounted: return false
      case .failed(let error): throw .device("read", error)
      }
    }
    return true
  }

  // MARK: Serving

  /// A loop thread's life.
  private func serve() {
    let thread = LoopThread(maxRead: options.maxRead)
    unblockWakeUpSignal()
    endings.withLock { $0.running.append(pthread_self()) }
    loop: while !endings.withLock({ $0.isStopping }) {
      switch receive(thread) {
      case .request(let bytes): process(bytes, thread)
      case .again: continue
      case .unmounted: break loop
      case .failed(let error):
        endings.withLock { if $0.failure == nil { $0.failure = .device("read", error) } }
        break loop
      }
    }
    endings.withLock { state in
      let this = pthread_self()
      state.running.removeAll { pthread_equal($0, this) != 0 }
      state.isStopping = true  // when one sees the end the others do too, or have to be told
    }
    wakeUp.signal()
  }

  private enum Received {
    case request(UnsafeRawBufferPointer)
    case again
    case unmounted
    case failed(Errno)
  }

  private func receive(_ thread: LoopThread) -> Received {
    let count = Glibc.read(descriptor, thread.request.baseAddress, thread.request.count)
    if count >= 0 { return .request(UnsafeRawBufferPointer(rebasing: thread.request[..<count])) }
    switch errno {
    case ENODEV, ECONNABORTED: return .unmounted
    // ENOENT: the request was withdrawn before it was read. EAGAIN: whoever opened the device made it non-blocking.
    case EINTR, ENOENT: return .again
    case EAGAIN:
      var waiting = pollfd(fd: descriptor, events: Int16(POLLIN), revents: 0)
      _ = poll(&waiting, 1, 1000)  // bounded, as the signal may come before it; the loop looks at `isStopping`
      return .again
    case let number: return .failed(Errno(rawValue: number))
    }
  }

  /// Lets libfuse decode one request and call its operation; then delivers the interrupts that came up, as no lock of
  /// libfuse is held here.
  private func process(_ bytes: UnsafeRawBufferPointer, _ thread: LoopThread) {
    var buffer = fuse_buf()
    buffer.size = bytes.count
    buffer.mem = UnsafeMutableRawPointer(mutating: bytes.baseAddress)  // only read: libfuse's type has no const
    fuse_session_process_buf(handle, &buffer)
    if thread.interrupted.isEmpty { return }
    for ticket in thread.interrupted { deliver(requests.withLock { $0.interrupt(ticket) }, ticket) }
    thread.interrupted.removeAll(keepingCapacity: true)
  }

  /// Tells the filesystem of an interrupted request, and keeps looking whether its caller is killed later.
  func deliver(_ interruption: RequestTable.Interruption, _ ticket: Ticket) {
    guard case .deliver(let process) = interruption else { return }
    let killed = isKilled(process: process)
    if !killed && requests.withLock({ $0.watch(ticket) }) { notifierWakeUp.signal() }
    interrupted(ticket, isKilled: killed)
  }

  // MARK: Ending

  /// Signals the threads until all have left: one may be just ahead of its read when the first signal comes.
  private func endThreads() {
    while true {
      let running = endings.withLock { $0.running }
      if running.isEmpty { return }
      for thread in running { pthread_kill(thread, wakeUpSignal) }  // not joined yet, so the handles are valid
      wakeUp.wait(milliseconds: 10)
    }
  }

  /// Closes the device, yet keeps its number: a reply that comes later goes to /dev/null.
  private func closeDevice() {
    fuse_session_exit(handle)
    let null = Glibc.open("/dev/null", O_WRONLY | O_CLOEXEC)
    if null < 0 || dup2(null, descriptor) < 0 {
      Log.warning("the fuse device could not be closed: \(Errno.current); it closes with the process")
    }
    if null >= 0 { close(null) }
  }

  private func installWakeUpSignal() {
    var action = sigaction()
    action.__sigaction_handler.sa_handler = ignoreSignal  // and no SA_RESTART: read(2) is to return
    sigaction(wakeUpSignal, &action, nil)
  }

  private func unblockWakeUpSignal() {
    var set = sigset_t()
    sigemptyset(&set)
    sigaddset(&set, wakeUpSignal)
    pthread_sigmask(SIG_UNBLOCK, &set, nil)
  }
}
