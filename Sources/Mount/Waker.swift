import Base
import CFuse
import Glibc
import Reading

/// Has the kernel tell programs that watch the mount (inotify) of names that come, go or change with a new list, and of
/// files that change at their origin.
///
/// The kernel tells of what is done through a mount alone. So the helper starts a process, the waker, that makes,
/// removes and touches the names there (``WakeOrders``), and this answers it: what it asks for has happened in the
/// catalog before. Everybody else gets EROFS. A new name is hidden until the waker makes it, so that no program has
/// looked it up before it is told.
///
/// Any thread may call it. The thread in ``run(_:_:)`` gives the orders and waits for the helper.
final class Waker: Sendable {
  /// What a lookup of a name is to answer.
  enum Lookup: Equatable {
    case asUsual
    /// There is no such name, and the kernel must not remember that.
    case absent
    /// It is there for the waker alone, which is about to remove it.
    case leaving(isFolder: Bool)
  }

  /// What a touch is to answer.
  enum Touch {
    case refused(Errno)
    case file(Attributes)
    /// How often folders were touched with this time.
    case folder(Int)
  }

  /// How long wakers may work on one announcement, in seconds: ten thousand names take one or two.
  private static let longest = 10.0

  private let helper: WakingHelper
  private let state = Lock(WakerState())
  private let wakeUp = Signal()
  private let told = Signal()

  init(_ socket: consuming FileDescriptor?) throws(Errno) { helper = try WakingHelper(socket) }

  // MARK: From the server

  /// Hides names that are about to be in the catalog, as far as programs can be told one by one. Those that were hidden
  /// and not announced are hidden no more.
  func prepare(_ changes: [TreeChange]) {
    var counts: [Inode: Int] = [:]
    for change in changes where change.isAdded { counts[change.parent, default: 0] += 1 }
    let few = changes.lazy.filter { $0.isAdded && counts[$0.parent, default: 0] <= WakeOrders.mostNames }
    state.withLock { state in
      let round = state.round
      state.show { $0.round == round }
      for change in few.prefix(WakeOrders.mostInAll) { state.hide(TreeName(change), isFolder: change.isFolder) }
    }
  }

  /// Has programs told of changes that are in the catalog, and then shows all names that were hidden for them.
  func announce(_ changes: [TreeChange]) {
    state.withLock { state in
      state.announced.append((state.round, changes))
      state.round += 1
    }
    wakeUp.raise()
  }

  /// Has programs told that a file has changed. Those that change meanwhile are told together.
  func changed(_ file: TreeChange) {
    state.withLock { state in
      if let last = state.announced.last, last.round == nil {
        state.announced[state.announced.count - 1].changes.append(file)
      } else {
        state.announced.append((nil, [file]))
      }
    }
    wakeUp.raise()
  }

  /// Waits until all that was announced is told, for `seconds` at most. Only one thread may wait.
  func settle(atMost seconds: Double) {
    let wanted = state.withLock { $0.round }
    let begin = Instant.now
    while state.withLock({ $0.told < wanted && !$0.isEnding }) {
      let left = seconds - Instant.now.seconds(since: begin)
      if left <= 0 { return }
      told.wait(seconds: left)
    }
  }

  /// Makes ``run(_:_:)`` return.
  func end() {
    state.withLock { $0.isEnding = true }
    helper.end()
    wakeUp.raise()
    told.raise()
  }

  // MARK: From the kernel

  /// What `process` sees of a name.
  func lookup(_ name: UnsafePointer<CChar>, in parent: Inode, process: Int32) -> Lookup {
    state.withLock { state in
      if state.isIdle { return .asUsual }
      let text = String(cString: name)
      if parent == rootInode, text == state.password {
        state.process = process
        return .absent
      }
      let name = TreeName(parent, text)
      if state.process == process, let isFolder = state.leaving[name]?.isFolder {
        state.leaving[name]?.isFound = true
        return .leaving(isFolder: isFolder)
      }
      // Whoever else finds it gone has the kernel remember that, and then nobody would be told.
      return state.hidden(name) == nil && state.leaving[name] == nil ? .asUsual : .absent
    }
  }

  /// Whether `process` is the waker: what it looks at, no program does.
  func isWaker(_ process: Int32) -> Bool { state.withLock { $0.process == process } }

  /// An inode that no file of the catalog has: those count up from 1.
  func nextInode() -> Inode {
    state.withLock { state in
      state.lastInode += 1
      return state.lastInode
    }
  }

  /// The names that no listing of the folder shows, as bytes.
  func hidden(in folder: Inode) -> Set<[UInt8]>? {
    state.withLock { state in state.hidden[folder].map { Set($0.keys) } }
  }

  /// Whether the waker makes this name. From then on everybody sees it.
  func mayMake(_ name: UnsafePointer<CChar>, in parent: Inode, isFolder: Bool, process: Int32) -> Bool {
    state.withLock { state in
      let name = TreeName(parent, String(cString: name))
      guard state.process == process, state.hidden(name)?.isFolder == isFolder else { return false }
      state.show(name)
      return true
    }
  }

  /// Takes a name away. Returns nil if it is the waker that does so, or what it is refused with.
  ///
  /// The inode of a folder that a program removes is dead to the kernel for ever, also when the folder is listed again;
  /// and while a file that a program removes is open, the filesystem cannot be made read-only. So the waker removes
  /// another one: ESTALE makes the kernel look a name up that it knows.
  func remove(_ name: UnsafePointer<CChar>, in parent: Inode, isFolder: Bool, process: Int32) -> Errno? {
    state.withLock { state in
      let name = TreeName(parent, String(cString: name))
      guard state.process == process, let leaving = state.leaving[name], leaving.isFolder == isFolder else {
        return .readOnly
      }
      if !leaving.isFound { return .stale }
      state.leaving[name] = nil
      return nil
    }
  }

  /// What a touch by `process` is answered. ESTALE makes the kernel look a name up that it knows by its old inode.
  func touch(_ inode: Inode, process: Int32) -> Touch {
    state.withLock { state in
      guard state.process == process else { return .refused(.readOnly) }
      guard let attributes = state.touched.removeValue(forKey: inode) else { return .refused(.stale) }
      if let attributes { return .file(attributes) }
      state.touches += 1
      return .folder(state.touches)
    }
  }

  // MARK: The thread

  /// What the waker's thread runs.
  func run(_ fileSystem: any Served, _ notifier: Notifier) {
    while true {
      let (next, isEnding) = state.withLock { state in
        (state.announced.isEmpty ? nil : state.announced.removeFirst(), state.isEnding)
      }
      if isEnding { return }
      guard let next else {
        wakeUp.wait()
        continue
      }
      let hidden = state.withLock { $0.hidden }
      let orders = WakeOrders(next.changes, fileSystem) { hidden[$0.parent]?[$0.bytes] != nil }
      tell(next.round, orders, notifier)
      guard let round = next.round else { continue }
      state.withLock { $0.told = round + 1 }
      told.raise()
    }
  }

  private func tell(_ round: Int?, _ orders: WakeOrders, _ notifier: Notifier) {
    let untold = Set(orders.untold)
    state.withLock { state in
      for name in untold { state.show(name) }
      for name in orders.removed { state.leaving[name.key] = WakerState.Leaving(isFolder: name.value) }
      state.touched = orders.touched
    }
    // Of what another file replaces, or shows another size, the kernel may have the former one's.
    for name in untold.union(orders.replaced) { notifier.forget(name) }
    for folder in orders.folders { notifier.forgetListing(of: folder) }
    let begin = Instant.now
    for packet in orders.packets {
      if Instant.now.seconds(since: begin) > Self.longest { break }
      let password = ".mediafs-" + String(UInt64.random(in: .min ... .max), radix: 16)
      state.withLock { $0.password = password }
      let isCarriedOut = helper.send(packet, password: password)
      state.withLock { ($0.password, $0.process) = (nil, nil) }
      if !isCarriedOut { break }
    }
    // What the waker did not come to, the kernel forgets; who watches is not told.
    let rest = state.withLock { state in
      func isOver(_ name: WakerState.Hidden) -> Bool { round.map { name.round <= $0 } ?? false }
      let rest = Array(state.leaving.keys) + state.hiddenNames(isOver)
      state.show(isOver)
      (state.leaving, state.touched) = ([:], [:])
      return rest
    }
    for name in rest + orders.replaced { notifier.forget(name) }
    for folder in orders.folders { notifier.forgetListing(of: folder) }
  }
}
