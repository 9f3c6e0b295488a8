import Base
import Reading

/// A mounted filesystem being served: requests come from /dev/fuse, answers go back.
///
/// See `docs/decisions` for the threads and why they are so.
public final class FuseSession: Sendable {
  private let session: ServedSession<MediaFileSystem>

  /// Where answers go that come later.
  public var port: any ReplyPort { session }

  /// Prepares to serve `fileSystem`.
  ///
  /// `device` is a /dev/fuse descriptor that is already mounted (a helper mounted it and handed it over). It is closed
  /// when ``run(ready:)`` ends; the kernel then fails what is parked, unless another process holds the descriptor too.
  public init(
    device: consuming FileDescriptor, fileSystem: MediaFileSystem, options: MountOptions
  ) throws(MountError) {
    session = try ServedSession(device: device, fileSystem: fileSystem, options: options)
  }

  /// Serves until the mount is gone or ``stop()`` is called. To be called once, on a thread that may wait.
  ///
  /// `ready` is called once on this thread, after INIT was answered, with the raw bytes of the INIT request: a helper
  /// keeps them, to restart a server under a live mount. It is not called when the mount ends before.
  public func run(ready: @escaping @Sendable ([UInt8]) -> Void) throws(MountError) {
    try session.run(ready: ready)
  }

  /// Makes ``run(ready:)`` end soon, without unmounting. From any thread, any number of times.
  public func stop() { session.stop() }
}
