import Base
import Glibc

/// The signals that ask the server to end: SIGTERM and SIGINT. A SIGHUP is told in the log and changes nothing: a
/// terminal that closes does not unmount.
///
/// They are blocked in every thread and taken by one thread of their own with sigwait(3), so that what they set off may
/// take locks and allocate, which a signal handler must not. SIGPIPE and SIGXFSZ are ignored: a closed socket, or a
/// file beyond its limit, is an error of its write.
package enum StopSignals {
  private static func set() -> sigset_t {
    var set = sigset_t()
    sigemptyset(&set)
    for number in [SIGTERM, SIGINT, SIGHUP] { sigaddset(&set, number) }
    return set
  }

  /// To be called first of all, on the main thread: threads that are made later have them blocked too.
  package static func block() {
    var set = set()
    pthread_sigmask(SIG_BLOCK, &set, nil)
    signal(SIGPIPE, SIG_IGN)
    signal(SIGXFSZ, SIG_IGN)
  }

  /// Starts the thread, which calls `handler` with the signal's number each time one comes that asks for the end.
  package static func watch(_ handler: @escaping @Sendable (Int32) -> Void) {
    _ = OwnedThread(name: "signals") {
      var set = set()
      var number: Int32 = 0
      while sigwait(&set, &number) == 0 {
        if number == SIGHUP {
          Log.info("the server ignores SIGHUP: a mount ends by unmounting, or by SIGTERM")
        } else {
          handler(number)
        }
      }
    }
  }
}
