import Base
import CCrypto
import Glibc
import Manifest

/// Computes a digest piece by piece (libcrypto's EVP_Digest functions). Only one thread at a time may use it.
package struct Digester: ~Copyable {
  private let context: OpaquePointer
  private let length: Int

  /// Starts a digest. Throws if libcrypto refuses the function (FIPS mode has no MD5) or has no memory.
  package init(_ algorithm: Checksum.Algorithm) throws(StoreError) {
    let function =
      switch algorithm {
      case .sha1: EVP_sha1()
      case .sha256: EVP_sha256()
      case .sha512: EVP_sha512()
      case .md5: EVP_md5()
      }
    guard let function, let context = EVP_MD_CTX_new() else {
      throw StoreError(kind: .invalid, message: "cannot compute \(algorithm.rawValue): libcrypto has no memory for it")
    }
    guard EVP_DigestInit_ex(context, function, nil) == 1 else {
      EVP_MD_CTX_free(context)
      throw StoreError(
        kind: .invalid, message: "cannot compute \(algorithm.rawValue): this machine's libcrypto does not allow it")
    }
    self.context = context
    length = Int(EVP_MD_get_size(function))
  }

  deinit { EVP_MD_CTX_free(context) }

  /// Adds the next bytes.
  package mutating func update(_ bytes: UnsafeRawBufferPointer) {
    let result = EVP_DigestUpdate(context, bytes.baseAddress, bytes.count)
    precondition(result == 1, "EVP_DigestUpdate fails only without EVP_DigestInit")
  }

  /// The digest of all bytes that were added.
  package consuming func finish() -> [UInt8] {
    var digest = [UInt8](repeating: 0, count: length)
    let result = EVP_DigestFinal_ex(context, &digest, nil)
    precondition(result == 1, "EVP_DigestFinal fails only without EVP_DigestInit")
    return digest
  }

  /// The digest of the first `size` bytes of an open file, which it reads in pieces of 1 MiB. Nil if `isCancelled`,
  /// called before each piece, returned true. Throws if the file is shorter or cannot be read. Blocks: no thread that
  /// answers others may call it.
  package static func digest(
    of descriptor: Int32, size: Int64, _ algorithm: Checksum.Algorithm, isCancelled: () -> Bool = { false }
  ) throws(StoreError) -> [UInt8]? {
    var digester = try Digester(algorithm)
    let buffer = PieceBuffer()
    var position: Int64 = 0
    while position < size {
      if isCancelled() { return nil }
      let piece = try buffer.read(descriptor, at: position, limit: size)
      digester.update(piece)
      position += Int64(piece.count)
    }
    return digester.finish()
  }

  /// The digest of bytes in memory.
  static func digest(of text: String, _ algorithm: Checksum.Algorithm) throws(StoreError) -> [UInt8] {
    var digester = try Digester(algorithm)
    var text = text
    text.withUTF8 { digester.update(UnsafeRawBufferPointer($0)) }
    return digester.finish()
  }
}

/// A buffer for reading a file piece by piece.
struct PieceBuffer: ~Copyable {
  /// Large enough that the cost of the calls does not matter, small enough to stay in a processor's cache.
  static let size = 1 << 20
  // Allocated memory and not an array, because callers use pieces of it without exclusive access.
  private let memory = UnsafeMutableRawBufferPointer.allocate(byteCount: PieceBuffer.size, alignment: 4096)

  deinit { memory.deallocate() }

  /// The bytes at `position`, as many as fit and are before `limit`; valid until the next call. Throws `.corrupt` if
  /// the file ends earlier.
  func read(_ descriptor: Int32, at position: Int64, limit: Int64) throws(StoreError) -> UnsafeRawBufferPointer {
    let wanted = Int(min(Int64(PieceBuffer.size), limit - position))
    var filled = 0
    do throws(Errno) {
      while filled < wanted {
        let count = try retrying {
          pread(descriptor, memory.baseAddress! + filled, wanted - filled, Int(position) + filled)  // never empty
        }
        if count == 0 { break }
        filled += count
      }
    } catch {
      throw .file(error, "cannot read at byte \(position)")
    }
    guard filled == wanted else {
      throw StoreError(kind: .corrupt, message: "the file ends at byte \(position + Int64(filled)), not at \(limit)")
    }
    return UnsafeRawBufferPointer(rebasing: memory[..<filled])
  }
}
