import Base
import Glibc

/// The signals that the server takes: SIGTERM and SIGINT stop it, and SIGHUP has it read its list again.
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

  /// Starts the thread, which calls `handler` with the signal's number for each of them.
  package static func watch(_ handler: @escaping @Sendable (Int32) -> Void) {
    _ = OwnedThread(name: "signals") {
      var set = set()
      var number: Int32 = 0
      while sigwait(&set, &number) == 0 {
        handler(number)
      }
    }
  }
}
