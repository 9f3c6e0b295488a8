import Base
import CSystem
import Glibc

/// A thread that checks every few seconds, and when the kernel reports a change of addresses, whether the machine
/// slept, whether it lost an address, and whether the log is full.
final class Housekeeper: Sendable {
  /// Seconds between two checks: a reader hardly notices such a delay after a sleep.
  private static let interval = 5.0
  /// A sleep is at least this long, in nanoseconds.
  private static let sleep: Int64 = 2_000_000_000
  /// Addresses change in bursts (DHCP, IPv6). A burst has ended after so many milliseconds without a change.
  private static let settling: Int32 = 1000
  /// For so many seconds it is waited for at most: where containers come and go, it may never end.
  private static let longest = 10.0

  private let reconnect: @Sendable () -> Void
  private let everyRound: @Sendable () -> Void
  private let wake: FileDescriptor
  private let thread = Lock<OwnedThread?>(nil)

  /// Starts the thread. It calls `reconnect` when connections are likely to be dead, and `everyRound` at every check.
  init(
    reconnect: @escaping @Sendable () -> Void, everyRound: @escaping @Sendable () -> Void
  ) throws(ServerError) {
    self.reconnect = reconnect
    self.everyRound = everyRound
    let number = eventfd(0, Int32(EFD_CLOEXEC | EFD_NONBLOCK))
    guard number >= 0 else { throw .failed("cannot create an eventfd: \(Errno.current)") }
    wake = FileDescriptor(owning: number)
    let started = OwnedThread(name: "housekeeper") { [self] in run() }
    thread.withLock { $0 = started }
  }

  /// Stops the thread and waits for its end.
  func stop() {
    var one: UInt64 = 1
    _ = write(wake.rawValue, &one, 8)
    thread.withLock { thread in thread.take() }?.join()
  }

  private func run() {
    let watch = csystem_open_address_watch()
    if watch < 0 { Log.debug("cannot watch for changes of the network: \(Errno.current)") }
    let netlink = FileDescriptor(owning: watch)
    var addresses = Self.addresses()
    var asleep = Self.timeAsleep()
    while true {
      var events = [
        pollfd(fd: wake.rawValue, events: Int16(POLLIN), revents: 0),
        pollfd(fd: netlink.rawValue, events: Int16(POLLIN), revents: 0),
      ]
      _ = poll(&events, 2, Int32(Self.interval * 1000))
      if events[0].revents != 0 { return }
      if events[1].revents != 0 { Self.settle(netlink.rawValue, wake: wake.rawValue) }
      let (nowAsleep, nowAddresses) = (Self.timeAsleep(), Self.addresses())
      if nowAsleep - asleep > Self.sleep {
        Log.info("the machine slept: the server opens its connections again")
        reconnect()
      } else if !addresses.isSubset(of: nowAddresses) || (addresses.isEmpty && !nowAddresses.isEmpty) {
        Log.info("the network changed: the server opens its connections again")
        reconnect()
      }
      (asleep, addresses) = (nowAsleep, nowAddresses)
      everyRound()
    }
  }

  /// Discards the kernel's messages until the burst has ended, ``longest`` seconds have passed, or `wake` is readable.
  static func settle(_ netlink: Int32, wake: Int32) {
    var message = [UInt8](repeating: 0, count: 8192)
    let end = Instant.now.adding(seconds: longest)
    while Instant.now < end {
      if recv(netlink, &message, message.count, 0) > 0 { continue }
      var events = [netlink, wake].map { pollfd(fd: $0, events: Int16(POLLIN), revents: 0) }
      let count = poll(&events, 2, settling)
      if count <= 0 || events[1].revents != 0 { return }
    }
  }

  /// Nanoseconds that the machine has slept since it started.
  private static func timeAsleep() -> Int64 { csystem_boottime_nanoseconds() - csystem_monotonic_nanoseconds() }

  private static func addresses() -> Set<String> {
    var text = [CChar](repeating: 0, count: 1 << 16)
    let count = csystem_local_addresses(&text, text.count)
    guard count > 0 else { return [] }
    let lines = text[..<count].split(separator: 10)
    return Set(lines.map { String(decoding: $0.map { UInt8(bitPattern: $0) }, as: UTF8.self) })
  }
}
