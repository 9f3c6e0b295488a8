import Base
import CSystem
import Glibc

/// Identifies one run of the machine, from boot to shutdown, and in it the mount of the store's filesystem. Bytes that
/// were written but not synced survive only within both: a disk that was unplugged has only what was synced.
enum BootID {
  /// For a store in the mount that `mount` names; nil: nobody can tell that mount from another one, so that the catalog
  /// trusts no recent extents.
  static func current(inMount mount: String?) -> [UInt8] {
    current() + Array(" \(mount ?? "unknown \(UInt64.random(in: .min ... .max))")".utf8)
  }

  /// The text of `/proc/sys/kernel/random/boot_id` (random(4)). If it cannot be read, random bytes that no other run
  /// has: the catalog then trusts no recent extents.
  static func current() -> [UInt8] {
    do throws(Errno) {
      let text = try read(FileDescriptor.open("/proc/sys/kernel/random/boot_id", O_RDONLY)).prefix { $0 != 0x0a }
      if text.count >= 32 { return [UInt8](text) }
      Log.warning("/proc/sys/kernel/random/boot_id has no id; after a crash, mediafs downloads unsynced data again")
    } catch {
      Log.warning("boot id: cannot be read (\(error)); after a crash, mediafs downloads unsynced data again")
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
