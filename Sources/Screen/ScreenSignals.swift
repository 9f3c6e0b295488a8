import Base
import Glibc

/// The signals that a program with a ``Screen`` takes by itself: those that end it, a new size, a stop and its end.
///
/// Every thread blocks them, and one takes them with sigwait(3): unlike a handler, it may do anything.
package enum ScreenSignals {
  private static let numbers = [SIGTERM, SIGINT, SIGHUP, SIGQUIT, SIGWINCH, SIGTSTP, SIGCONT]

  private static func set(_ numbers: [Int32]) -> sigset_t {
    var set = sigset_t()
    sigemptyset(&set)
    for number in numbers { sigaddset(&set, number) }
    return set
  }

  /// Blocks them and starts the thread, which calls `handler` with each. The main thread calls this before it has
  /// another.
  package static func watch(_ handler: @escaping @Sendable (Int32) -> Void) {
    var all = set(numbers)
    pthread_sigmask(SIG_BLOCK, &all, nil)
    signal(SIGPIPE, SIG_IGN)
    OwnedThread(name: "signals") {
      var all = set(numbers)
      var number: Int32 = 0
      while sigwait(&all, &number) == 0 { handler(number) }
    }.detach()
  }

  /// Does to this process what `number` does by default: it ends, or stops until it is continued.
  package static func obey(_ number: Int32) {
    var one = set([number])
    signal(number, SIG_DFL)
    pthread_sigmask(SIG_UNBLOCK, &one, nil)
    raise(number)
    pthread_sigmask(SIG_BLOCK, &one, nil)
  }
}
