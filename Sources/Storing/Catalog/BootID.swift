import Base
import CSystem
import Glibc

/// Names the time from one start of the machine to the next: bytes that were written and not synced are only there
/// within it.
enum BootID {
  /// random(4), `/proc/sys/kernel/random/boot_id`, as it stands. Where it cannot be read, bytes that no other run has:
  /// then nothing recent is believed.
  static func current() -> [UInt8] {
    do throws(Errno) {
      let text = try read(FileDescriptor.open("/proc/sys/kernel/random/boot_id", O_RDONLY)).prefix { $0 != 0x0a }
      if text.count >= 32 { return [UInt8](text) }
      Log.warning("boot id: /proc/sys/kernel/random/boot_id has no id; what a crash leaves unsynced is fetched again")
    } catch {
      Log.warning("boot id: cannot be read (\(error)); what a crash leaves unsynced is fetched again")
    }
    var generator = SystemRandomNumberGenerator()
    return (0..<32).map { _ in UInt8.random(in: 0...255, using: &generator) }
  }

  private static func read(_ descriptor: consuming FileDescriptor) throws(Errno) -> [UInt8] {
    let buffer = UnsafeMutableRawBufferPointer.allocate(byteCount: 64, alignment: 1)
    defer { buffer.deallocate() }
    return [UInt8](buffer[..<(try descriptor.readFully(at: 0, into: buffer))])
  }
}
