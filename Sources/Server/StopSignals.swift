import Base
import Glibc

/// The signals that stop the server: SIGTERM and SIGINT. SIGHUP only writes a line to the log: a terminal that closes
/// does not unmount.
///
/// Every thread blocks them, and one thread takes them with sigwait(3). Unlike a signal handler, that thread may take
/// locks and allocate memory. The process ignores SIGPIPE and SIGXFSZ: a write to a closed socket, or beyond the limit
/// of a file's size, returns an error.
package enum StopSignals {
  private static func set() -> sigset_t {
    var set = sigset_t()
    sigemptyset(&set)
    for number in [SIGTERM, SIGINT, SIGHUP] { sigaddset(&set, number) }
    return set
  }

  /// Blocks the signals. The main thread calls it first, because later threads inherit its signal mask.
  package static func block() {
    var set = set()
    pthread_sigmask(SIG_BLOCK, &set, nil)
    signal(SIGPIPE, SIG_IGN)
    signal(SIGXFSZ, SIG_IGN)
  }

  /// Starts the thread, which calls `handler` with the signal's number for each SIGTERM and SIGINT.
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
