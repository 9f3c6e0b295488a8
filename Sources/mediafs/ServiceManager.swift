import Glibc

/// The service manager that started this process (sd_listen_fds(3)).
enum ServiceManager {
  /// Whether it kept a mount of mediafs for this process. Nobody answers that mount until the next server does.
  static var keepsMount: Bool {
    guard let process = text("LISTEN_PID"), pid_t(process) == getpid() else { return false }
    return text("LISTEN_FDNAMES")?.split(separator: ":").contains("mediafs-device") ?? false
  }

  private static func text(_ name: String) -> String? { getenv(name).map { String(cString: $0) } }
}
