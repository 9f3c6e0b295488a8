import Base
import CSystem
import Control
import Glibc
import Screen
import Server
import Storing

/// `mediafs top`: what goes on in a mount, on the whole terminal.
enum TopCommand {
  static let help = CommandHelp(
    synopsis: ["top [MOUNTPOINT] [--delay SECONDS]"],
    summary: "Watch a mount live, and steer it by keys",
    about: [
      """
      Shows what is read and downloaded now: each file with a bar of its stored parts and the places of its readers, \
      rates, what waits and for what; each line (the connections to a host) with its rate, latency and errors. Keys \
      fetch, keep, pause and clear the selected file. Needs a terminal; for scripts there is 'mediafs status'.
      """,
      """
      If the server restarts, the view goes on. It ends when the mount does. Without colors (NO_COLOR) or UTF-8 it \
      uses neither. Reads that the kernel answers by itself, from its cache or a complete file, are not seen.
      """,
    ],
    operands: [("MOUNTPOINT", "The mount to show. Default: the only live one, or a choice.")],
    groups: [
      (
        "Options",
        [.value("delay", "d", of: "SECONDS", help: "The time between two updates, 0.1 to 10. Default: 1.")]
      )
    ],
    sections: [CommandHelp.Section(title: "Keys", items: keys.map { ($0.typed, $0.does, []) })],
    status: "0 left by q, or the mount ended; 1 failed; 2 wrong usage.")

  /// The keys, for the help of the command and that of the screen.
  static let keys: [(typed: String, does: String)] = [
    ("arrows", "select a file; so do PgUp, PgDn, Home, End"),
    ("f", "fetch: download the whole file now"),
    ("k", "keep: fetch it and never evict it"),
    ("u", "auto: store it as it is read"),
    ("o", "online: store no more than a reader needs"),
    ("p, r", "pause its downloads, resume them"),
    ("P, R", "pause all downloads, resume them"),
    ("c", "clear: delete its stored data (asks first)"),
    ("s, S", "sort by the next column; reverse"),
    ("/", "filter by a part of the path; Esc ends it"),
    ("a", "all files of which something is known"),
    ("m", "choose another mount"),
    ("h, ?", "help"),
    ("q", "quit"),
  ]

  static func run(_ arguments: [String]) -> Int32 {
    OptionParser.run("top", arguments, help) { options throws(CommandError) in
      guard options.operands.count <= 1 else { throw .usage("top takes one mountpoint") }
      let delay = try delay(options)
      let mounts = try live(options.operands.first)
      let end = try TopLoop(mounts, delay: delay).run()
      let terminal = Terminal()
      switch end {
      case .quit: break
      case .ended(let mountpoint): terminal.line("\(TerminalText.plain(mountpoint)) was unmounted.")
      case .signal(let number): ScreenSignals.obey(number)
      }
      try terminal.finish()
      return ExitCode.done
    }
  }

  private static func delay(_ options: ParsedOptions) throws(CommandError) -> Double {
    guard let text = options.value("delay") else { return 1 }
    guard let delay = Double(text), (0.1...10).contains(delay) else {
      throw .usage("--delay takes a number of seconds from 0.1 to 10, not \(text)")
    }
    return delay
  }

  /// The mount that the argument names, or all live ones.
  private static func live(_ argument: String?) throws(CommandError) -> [MountRecord] {
    let selection = try MountSelection.remembered()
    let table: [MountTableEntry]
    do throws(Errno) { table = try MountTable.read() } catch {
      throw .failed("the table of mounts cannot be read: \(error)")
    }
    func isLive(_ mount: MountRecord) -> Bool {
      table.last { $0.mountpoint.utf8.elementsEqual(mount.mountpoint.utf8) }?.isMediafs ?? false
    }
    if let argument {
      let mount = try selection.mount(argument)
      guard isLive(mount) else {
        throw .failed("\(mount.mountpoint) is not mounted: 'mediafs status' shows what its store has")
      }
      return [mount]
    }
    let mounts = selection.everyones.map(\.mount).filter(isLive)
    if mounts.isEmpty { throw .failed("nothing is mounted: 'mediafs status' shows what stores have") }
    return mounts
  }
}

/// The screen, the keys and the news of the other threads, on the main thread.
private final class TopLoop {
  /// How it ended.
  enum End {
    case quit
    case ended(String)
    case signal(Int32)
  }

  private let mounts: [MountRecord]
  private let delay: Double
  private var state: TopState

  init(_ mounts: [MountRecord], delay: Double) {
    self.mounts = mounts
    self.delay = delay
    state = TopState(mounts: mounts.map(\.mountpoint))
  }

  func run() throws(CommandError) -> End {
    // Open as long as the process: the client's thread, which writes to it, does not end before.
    let waker: Int32
    do throws(Errno) { waker = try retrying { eventfd(0, Int32(EFD_CLOEXEC | EFD_NONBLOCK)) } } catch {
      throw .failed("top cannot be woken: \(error)")
    }
    let session = TopSession(delay: delay) { eventfd_write(waker, 1) }
    ScreenSignals.watch { session.news.post((nil, .signal($0))) }
    let text = TopText(isUnicode: Characters.use() && getenv("TERM").map { String(cString: $0) } != "linux")
    let hasColors = getenv("NO_COLOR").map { $0.pointee == 0 } ?? true
    let screen: Screen
    do throws(Screen.Failure) { screen = try Screen(colors: hasColors) } catch {
      throw .failed("top needs a terminal: \(error.message). For scripts there is 'mediafs status'")
    }
    defer { screen.end() }
    if state.mount != nil { session.orders.post(.show(mounts[0])) }
    draw(screen, text)
    while true {
      guard wait(waker) else { return .signal(SIGHUP) }
      var drained = UInt64(0)
      eventfd_read(waker, &drained)
      // What was asked of the mount that was shown before may come late.
      for (mountpoint, news) in session.news.takeAll()
      where mountpoint?.utf8.elementsEqual(state.mountpoint.utf8) ?? true {
        if let end = take(news, screen) { return end }
      }
      for key in screen.keys() {
        switch state.type(key, now) {
        case .quit: return .quit
        case .ask(let request): if let index = state.mount { session.requests.post((mounts[index], request)) }
        case .listAll(let isWanted): session.orders.post(.listAll(isWanted))
        case .show(let index):
          state.show(index)
          session.orders.post(.show(mounts[index]))
        case nil: break
        }
      }
      draw(screen, text)
    }
  }

  /// Waits for a key or for news, at most until the clock shows another second. False: the terminal is gone.
  private func wait(_ waker: Int32) -> Bool {
    var sources = [
      pollfd(fd: STDIN_FILENO, events: Int16(POLLIN), revents: 0), pollfd(fd: waker, events: Int16(POLLIN), revents: 0),
    ]
    poll(&sources, 2, 1000)
    return sources[0].revents & Int16(POLLHUP | POLLERR | POLLNVAL) == 0
  }

  private var now: Double { Instant.now.seconds(since: Instant(nanoseconds: 0)) }

  private func take(_ news: TopSession.News, _ screen: Screen) -> End? {
    switch news {
    case .connected(let server): state.connected(server, now)
    case .active(let sums, let files): state.update(sums, files)
    case .totals(let sums): state.totals = sums
    case .listed(let files, let isWhole): state.list(files, isWhole: isWhole)
    case .lost(let why): state.link = .lost(why)
    case .ended:
      guard mounts.count > 1 else { return .ended(state.mountpoint) }
      state.mode = .mounts
      state.say("\(state.mountpoint) was unmounted", isError: true, now)
    case .done(let words): state.say(words, now)
    case .failed(let words): state.say(words, isError: true, now)
    case .signal(SIGWINCH): screen.measure()
    case .signal(SIGCONT): screen.takeOver()
    case .signal(SIGTSTP): screen.leave { ScreenSignals.obey(SIGTSTP) }
    case .signal(let number): return .signal(number)
    }
    return nil
  }

  private func draw(_ screen: Screen, _ text: TopText) {
    let layout = TopLayout(
      columns: screen.columns, rows: screen.rows, text: text, clock: TopLoop.clock(), now: now)
    screen.draw(layout.lines(&state))
  }

  /// The local time of day, with seconds.
  private static func clock() -> String {
    var seconds = time(nil)
    var parts = tm()
    guard localtime_r(&seconds, &parts) != nil else { return "" }
    func two(_ number: Int32) -> String { number < 10 ? "0\(number)" : "\(number)" }
    return "\(two(parts.tm_hour)):\(two(parts.tm_min)):\(two(parts.tm_sec))"
  }
}
