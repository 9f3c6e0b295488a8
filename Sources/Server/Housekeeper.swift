import Base
import CSystem
import Glibc

/// What has to be looked at now and then: whether the machine slept, whether an address it had is gone, whether the log
/// is full. One thread, which wakes every few seconds and when the kernel says that addresses changed.
final class Housekeeper: Sendable {
  /// Often enough that a reader notices no sleep, and no more.
  private static let interval = 5.0
  /// How much longer the wall must have waited than the processor for that to be a sleep, in nanoseconds.
  private static let sleep: Int64 = 2_000_000_000
  /// Addresses change in bursts (DHCP, IPv6): this long without another change, in milliseconds.
  private static let settling: Int32 = 1000

  private let reconnect: @Sendable () -> Void
  private let everyRound: @Sendable () -> Void
  private let wake: FileDescriptor
  private let thread = Lock<OwnedThread?>(nil)

  /// Starts it. `reconnect` is called when connections are likely to be dead, `everyRound` every few seconds; both on
  /// its thread.
  init(
    reconnect: @escaping @Sendable () -> Void, everyRound: @escaping @Sendable () -> Void
  ) throws(ServerError) {
    self.reconnect = reconnect
    self.everyRound = everyRound
    let number = eventfd(0, Int32(EFD_CLOEXEC | EFD_NONBLOCK))
    guard number >= 0 else { throw .failed("cannot make an eventfd: \(Errno.current)") }
    wake = FileDescriptor(owning: number)
    let started = OwnedThread(name: "housekeeper") { [self] in run() }
    thread.withLock { $0 = started }
  }

  /// Ends the thread.
  func stop() {
    var one: UInt64 = 1
    _ = write(wake.rawValue, &one, 8)
    thread.withLock { thread in thread.take() }?.join()
  }

  private func run() {
    let watch = csystem_open_address_watch()
    if watch < 0 { Log.debug("changes of the network are not noticed: \(Errno.current)") }
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
      if events[1].revents != 0 { Self.settle(netlink.rawValue) }
      let (nowAsleep, nowAddresses) = (Self.timeAsleep(), Self.addresses())
      if nowAsleep - asleep > Self.sleep {
        Log.info("the machine slept: connections are made anew")
        reconnect()
      } else if !addresses.isSubset(of: nowAddresses) || (addresses.isEmpty && !nowAddresses.isEmpty) {
        Log.info("the network changed: connections are made anew")
        reconnect()
      }
      (asleep, addresses) = (nowAsleep, nowAddresses)
      everyRound()
    }
  }

  /// Reads the kernel's messages away until there have been none for a moment.
  private static func settle(_ netlink: Int32) {
    var message = [UInt8](repeating: 0, count: 8192)
    repeat {
      while recv(netlink, &message, message.count, 0) > 0 {}
      var event = pollfd(fd: netlink, events: Int16(POLLIN), revents: 0)
      if poll(&event, 1, settling) <= 0 { return }
    } while true
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
