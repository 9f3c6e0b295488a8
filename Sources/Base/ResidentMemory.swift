import Glibc

/// Keeps pages resident: while SIGKILL is pending, the kernel does not fault in what it copies a request to or a reply
/// from, and the request ends with EIO. Without the right to it (ulimit -l), a reader gets EIO if the server is killed
/// at the very moment that it needs a page that was swapped out: the log says so, once.
package func keepResident(_ buffer: UnsafeMutableRawBufferPointer) {
  if mlock(buffer.baseAddress, buffer.count) == 0 { return }
  let error = Errno.current
  let isFirst = hasWarned.withLock { hasWarned in
    defer { hasWarned = true }
    return !hasWarned
  }
  if isFirst {
    Log.warning(
      "the server cannot lock \(buffer.count) bytes of its memory (\(error)): if it is killed while it needs a page "
        + "that was swapped out, a read fails; raise the limit (ulimit -l, or LimitMEMLOCK= of a systemd unit)")
  }
}

private let hasWarned = Lock(false)
