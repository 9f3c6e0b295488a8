import Base
import Glibc

/// SIGURG: its default action is to ignore it, so a stray one does no harm, and mediafs has no other use for it.
private let wakeUpSignal = SIGURG

private func ignoreSignal(_ number: Int32) {}

/// The threads that serve requests, and how they end.
///
/// They block in read(2) on the device: this measured half the latency of epoll (the kernel wakes one thread instead of
/// all, and there is no second call). ``end(_:)`` wakes them by a signal whose handler does nothing.
///
/// ``serve()`` and ``process(_:_:)`` run on a loop thread, ``stop()`` on any thread, all else on the thread that waits
/// for their end.
final class LoopThreads: Sendable {
  /// How the threads ended.
  private struct Endings {
    var isStopping = false
    /// The threads that serve, for pthread_kill.
    var running: [pthread_t] = []
    /// The first failure other than the end of the mount.
    var failure: MountError?
  }

  private let device: Device
  private let tickets: Tickets
  private let memory: SessionMemory
  private let maxRead: Int
  /// How many threads there are.
  private let count: Int
  /// Requests that killed servers, and are not served again.
  private let refused: [Suspect]
  private let endings = Lock(Endings())
  /// The requests that the last server left and that no thread has served yet, other than those in the threads' own
  /// buffers.
  private let left: Lock<[LeftRequest]>
  /// Wakes the thread that waits for the end: a loop thread ended, or ``stop()`` was called.
  let wakeUp: Event

  init(
    device: Device, tickets: Tickets, memory: SessionMemory, left: [LeftRequest], options: MountOptions
  ) throws(Errno) {
    self.device = device
    self.tickets = tickets
    self.memory = memory
    maxRead = options.maxRead
    refused = memory.refused
    let count = max(1, min(options.threads, SessionLayout.bufferCount - 1))
    self.count = count
    self.left = Lock(left.filter { if case .buffer(let index) = $0 { index >= count } else { true } })
    wakeUp = try Event()
  }

  /// Makes the threads end soon. Any thread may call it, any number of times.
  func stop() {
    endings.withLock { $0.isStopping = true }
    wakeUp.signal()
  }

  /// Whether the threads must end: ``stop()`` was called, or one of them ended.
  var isStopping: Bool { endings.withLock { $0.isStopping } }

  /// Starts the threads.
  func start() -> [OwnedThread] {
    installWakeUpSignal()
    return (0..<count).map { index in
      OwnedThread(name: "fuse-\(index)", record: memory.record(ofThread: index)) { self.serve(index) }
    }
  }

  /// Waits until a loop thread sees the end of the mount, or ``stop()`` is called.
  func waitForEnd() { while !isStopping { wakeUp.wait() } }

  /// Waits until all of them have ended. Throws the first failure.
  func end(_ threads: [OwnedThread]) throws(MountError) {
    while true {
      // Signals them until all have ended: one may be just ahead of its read when the first signal comes.
      let running = endings.withLock { $0.running }
      if running.isEmpty { break }
      for thread in running { pthread_kill(thread, wakeUpSignal) }  // not joined yet, so the handles are valid
      wakeUp.wait(milliseconds: 10)
    }
    for thread in threads { thread.join() }
    if let failure = endings.withLock({ $0.failure }) { throw failure }
  }

  // MARK: On a loop thread

  /// What a loop thread runs.
  private func serve(_ index: Int) {
    let thread = LoopThread(index, memory, maxRead: maxRead)
    unblockWakeUpSignal()
    endings.withLock { $0.running.append(pthread_self()) }
    serveLeft(thread)
    loop: while !isStopping {
      switch device.receive(into: thread.request) {
      case .request(let bytes):
        process(bytes, thread)
        memory.clearBuffer(index)  // after the reply, or after it was copied to its slot
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
      state.isStopping = true  // the others see the end too, or must be told
    }
    wakeUp.signal()
  }

  /// Serves what the last server left: first what is in the thread's own buffer, which it is about to use.
  private func serveLeft(_ thread: LoopThread) {
    thread.isLeft = true
    defer {
      thread.isLeft = false
      memory.note(request: nil, ofThread: thread.index)
    }
    if !isStopping { serve(leftInBuffer: thread.index, thread) }
    while !isStopping, let next = left.withLock({ $0.popLast() }) {
      switch next {
      case .buffer(let index): serve(leftInBuffer: index, thread)
      case .slot(let index):
        thread.again = index
        if let bytes = memory.request(inSlot: index) { processLeft(bytes, thread) }
        // Without a ticket it is no request that can wait.
        if thread.again != nil { memory.clearSlot(index) }
        thread.again = nil
      }
    }
  }

  private func serve(leftInBuffer index: Int, _ thread: LoopThread) {
    if let bytes = memory.request(inBuffer: index) { processLeft(bytes, thread) }
    memory.clearBuffer(index)
  }

  private func processLeft(_ bytes: UnsafeRawBufferPointer, _ thread: LoopThread) {
    memory.note(request: bytes, ofThread: thread.index)
    process(bytes, thread)
  }

  /// Processes one request. Then delivers the interrupts that libfuse reported: here libfuse holds no lock.
  private func process(_ bytes: UnsafeRawBufferPointer, _ thread: LoopThread) {
    thread.current = bytes
    if !refused.isEmpty, let request = Suspect(bytes), refused.contains(where: { $0.overlaps(request) }) {
      return device.refuse(bytes)
    }
    device.process(bytes)
    if thread.interrupted.isEmpty { return }
    for ticket in thread.interrupted { tickets.interrupt(ticket) }
    thread.interrupted.removeAll(keepingCapacity: true)
  }

  // MARK: The signal

  private func installWakeUpSignal() {
    var action = sigaction()
    action.__sigaction_handler.sa_handler = ignoreSignal  // no SA_RESTART: read(2) must return
    sigaction(wakeUpSignal, &action, nil)
  }

  private func unblockWakeUpSignal() {
    var set = sigset_t()
    sigemptyset(&set)
    sigaddset(&set, wakeUpSignal)
    pthread_sigmask(SIG_UNBLOCK, &set, nil)
  }
}
