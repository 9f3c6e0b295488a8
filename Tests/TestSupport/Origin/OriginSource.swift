import Base
import Glibc

/// Where the bytes of one response come from; used by the one thread of its connection.
struct OriginSource {
  private enum Bytes {
    case pattern
    case bytes([UInt8])
    // A class: the descriptor has one owner and this value is copied.
    case file(OpenFile)
  }
  private final class OpenFile {
    let descriptor: FileDescriptor
    init(_ descriptor: consuming FileDescriptor) { self.descriptor = descriptor }
  }

  private var bytes: Bytes
  /// The pattern's name; the path for other bytes.
  private(set) var name: String
  /// How many bytes there are.
  private(set) var size: Int64
  /// Which generation's bytes it gives.
  var generation: UInt64
  /// Whether what is sent of it counts as bytes of the resource.
  private(set) var isResource = true
  /// A file's own tag and date.
  private(set) var fileTag: String?
  private(set) var fileModified: Int64?

  /// A text that stands in for a resource.
  init(text: [UInt8]) {
    bytes = .bytes(text)
    name = ""
    size = Int64(text.count)
    generation = 0
    isResource = false
  }

  /// nil when it is a file that is not there.
  init?(_ resource: OriginResource, path: String) {
    name = path
    size = resource.size
    generation = resource.generation
    switch resource.content {
    case .pattern(let pattern):
      name = pattern
      bytes = .pattern
    case .bytes(let given):
      bytes = .bytes(given)
      size = Int64(given.count)
    case .file(let file):
      do throws(Errno) {
        let descriptor = try FileDescriptor.open(file, O_RDONLY)
        let status = try descriptor.status()
        guard status.st_mode & S_IFMT == S_IFREG else { return nil }
        size = Int64(status.st_size)
        fileModified = Int64(status.st_mtim.tv_sec)
        fileTag = "\"\(String(status.st_mtim.tv_sec, radix: 16))-\(String(status.st_size, radix: 16))\""
        bytes = .file(OpenFile(descriptor))
      } catch {
        if error != .notFound { Log.warning("origin: cannot open \(file): \(error)") }
        return nil  // answered with 404, as any server does
      }
    }
  }

  /// Fills `buffer` with the bytes from `offset` on: false when a file has them no longer.
  func fill(_ buffer: UnsafeMutableRawBufferPointer, offset: Int64) -> Bool {
    switch bytes {
    case .pattern:
      Pattern.fill(buffer, name: name, generation: generation, offset: offset)
      return true
    case .bytes(let all):
      guard offset + Int64(buffer.count) <= all.count else { return false }
      all.withUnsafeBytes {
        buffer.copyMemory(from: UnsafeRawBufferPointer(rebasing: $0[Int(offset)...].prefix(buffer.count)))
      }
      return true
    case .file(let file):
      do throws(Errno) { return try file.descriptor.readFully(at: offset, into: buffer) == buffer.count } catch {
        return false
      }
    }
  }
}
