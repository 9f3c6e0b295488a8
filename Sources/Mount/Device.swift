import Base
import CFuse
import Glibc

// How libfuse reaches /dev/fuse. Requests are read by our own threads and given to libfuse whole, replies pass here:
// this is where the INIT reply can be changed (for what this libfuse has no interface for) or kept from the kernel
// (when a new server takes over a live mount).

/// The operation code of INIT in a request's header (linux/fuse.h).
let initOperation: UInt32 = 26

/// The operation code of the request in `bytes`: a header is 40 bytes, the code its second word.
func operation(of bytes: UnsafeRawBufferPointer) -> UInt32? {
  bytes.count >= 40 ? bytes.loadUnaligned(fromByteOffset: 4, as: UInt32.self) : nil
}

// Plain functions: libfuse calls them from any thread.

/// libfuse's way to read; unused as long as our loop reads by itself, but libfuse wants one.
func deviceRead(
  _ descriptor: Int32, _ buffer: UnsafeMutableRawPointer?, _ length: Int, _ userdata: UnsafeMutableRawPointer?
) -> Int { Glibc.read(descriptor, buffer, length) }

/// Sends one reply or notification: writev(2), to which /dev/fuse answers all or an error. The reply to INIT gets what
/// this libfuse cannot put there.
func deviceWrite(
  _ descriptor: Int32, _ parts: UnsafeMutablePointer<iovec>?, _ count: Int32, _ userdata: UnsafeMutableRawPointer?
) -> Int {
  guard let userdata, let parts else { return Glibc.writev(descriptor, parts, count) }
  Unmanaged<FuseSession>.fromOpaque(userdata)._withUnsafeGuaranteedRef { $0.amend(parts, Int(count)) }
  return Glibc.writev(descriptor, parts, count)
}
