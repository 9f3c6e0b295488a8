import Glibc

/// Keeps pages resident: while SIGKILL is pending, the kernel does not fault in what it copies a request to or a reply
/// from, and the request ends with EIO. Without the right to it (ulimit -l), a reader gets EIO if the server is killed
/// at the very moment that it needs a page that was swapped out.
package func keepResident(_ buffer: UnsafeMutableRawBufferPointer) {
  if mlock(buffer.baseAddress, buffer.count) != 0 {
    Log.debug("cannot keep \(buffer.count) bytes in memory: \(Errno.current)")
  }
}
