import Base
import Glibc

/// Whether the thread `process` is being killed or is gone: then it no longer waits for the reply.
///
/// Reads the pending masks in /proc/PID/status (proc(5)). For any fatal signal the kernel puts SIGKILL there, for every
/// thread of the process. False for 0 (a caller outside this pid namespace) and when /proc cannot be read: then the
/// request's own deadline ends it.
func isKilled(process: Int32) -> Bool {
  guard process > 0 else { return false }
  do throws(Errno) {
    let file = try FileDescriptor.open("/proc/\(process)/status", O_RDONLY)
    var bytes = [UInt8](repeating: 0, count: 4096)
    var failure: Errno?
    let count = bytes.withUnsafeMutableBytes { buffer in
      do throws(Errno) { return try file.readFully(at: 0, into: buffer) } catch {
        failure = error
        return 0
      }
    }
    if let failure { throw failure }
    return hasPendingKill(status: String(decoding: bytes[..<count], as: UTF8.self))
  } catch {
    // With hidepid, /proc shows no process of others.
    return (error == .notFound || error.rawValue == ESRCH) && kill(process, 0) != 0 && errno == ESRCH
  }
}

/// Whether SIGKILL is in `SigPnd` (the thread's) or `ShdPnd` (its process's), hexadecimal masks with signal 1 as bit 0.
func hasPendingKill(status: String) -> Bool {
  for line in status.split(separator: "\n") where line.hasPrefix("SigPnd:") || line.hasPrefix("ShdPnd:") {
    let digits = line.dropFirst(7).drop { $0 == " " || $0 == "\t" }
    if let mask = UInt64(digits, radix: 16), mask & (1 << UInt64(SIGKILL - 1)) != 0 { return true }
  }
  return false
}
