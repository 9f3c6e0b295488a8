import Base
import CSystem
import Glibc
import TestSupport
import Testing

@testable import Server

/// The thread that looks after sleeps, addresses and the log.
@Suite struct HousekeeperTests {
  /// Where containers come and go, the kernel tells of addresses without a pause.
  @Test func aBurstWithoutAnEndHoldsUpNoStop() throws {
    var ends: [Int32] = [-1, -1]
    try #require(socketpair(AF_UNIX, Int32(SOCK_DGRAM.rawValue | SOCK_NONBLOCK.rawValue), 0, &ends) == 0)
    let kernel = FileDescriptor(owning: ends[0])
    let watch = FileDescriptor(owning: ends[1])
    let wake = FileDescriptor(owning: eventfd(0, Int32(EFD_CLOEXEC | EFD_NONBLOCK)))
    let (kernelNumber, watchNumber, wakeNumber) = (kernel.rawValue, watch.rawValue, wake.rawValue)
    let isOver = Lock(false)
    let burst = OwnedThread(name: "burst") {
      var byte: UInt8 = 0
      while !isOver.withLock({ $0 }) {
        _ = send(kernelNumber, &byte, 1, Int32(MSG_DONTWAIT | MSG_NOSIGNAL))
        usleep(1000)
      }
    }
    let hasSettled = Signal()
    let settling = OwnedThread(name: "settling") {
      Housekeeper.settle(watchNumber, wake: wakeNumber)
      hasSettled.raise()
    }
    var one: UInt64 = 1
    #expect(write(wakeNumber, &one, 8) == 8)
    #expect(hasSettled.wait(seconds: waitBound), "it waits for the end of the burst")
    isOver.withLock { $0 = true }
    burst.join()
    settling.join()
  }
}
