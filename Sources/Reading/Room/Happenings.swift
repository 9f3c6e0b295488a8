import Base
import Manifest
import Storing

/// Something that happened to a file.
package struct Happening: Sendable, Equatable {
  /// What happened.
  package enum Kind: Sendable, Equatable {
    /// The origin answered for the file for the first time.
    case new
    /// The origin has another version of it, or a user changed its copy.
    case changed
    /// It is complete, verified, and in the library.
    case complete
    /// Its download has an error that it did not have before.
    case failing
    /// Stored bytes of it made room for others.
    case evicted
    /// A program has waited for ``Happenings/stall`` seconds for its bytes.
    case stalled
    /// A user said a rule: the path is that of the rule, or its pattern.
    case rule
  }

  package var kind: Kind
  /// Its path in the mount.
  package var path: String
  /// The bytes that it is about.
  package var bytes: Int64?
  /// The reason, without secrets.
  package var message: String?
  /// Where a complete file is: its path in the library.
  package var copy: String?
  /// The first URL of a complete file, without secrets.
  package var url: String?

  package init(
    _ kind: Kind, path: String, bytes: Int64? = nil, message: String? = nil, copy: String? = nil, url: String? = nil
  ) {
    self.kind = kind
    self.path = path
    self.bytes = bytes
    self.message = message
    self.copy = copy
    self.url = url
  }
}

/// Who is told what happens. Any thread tells, but none with a lock held.
package protocol HappeningListener: Sendable {
  /// Whether anybody wants to know. Nothing is looked up for nobody.
  var isHeard: Bool { get }
  /// Must not block.
  func happened(_ happening: Happening)
}

/// The listener, once there is one.
final class Happenings: Sendable {
  /// How long a program waits until that is told, in seconds.
  static let stall = 2.0

  private let listener = Lock<(any HappeningListener)?>(nil)

  func tell(_ new: any HappeningListener) { listener.withLock { $0 = new } }

  /// Tells what `happening` makes, if anybody wants to know.
  func post(_ happening: () -> Happening?) {
    guard let listener = listener.withLock({ $0 }), listener.isHeard, let told = happening() else { return }
    listener.happened(told)
  }
}

extension ReadingRoom {
  /// Something happened to the file of `content`.
  func happened(_ kind: Happening.Kind, to content: Content, bytes: Int64? = nil, _ message: String? = nil) {
    happenings.post { Happening(kind, path: content.path, bytes: bytes, message: message) }
  }

  /// The file of `content` is in the library as `copy`.
  func completed(_ content: Content, as copy: LibraryCopy) {
    counters.add(1, to: .completions)
    happenings.post {
      Happening(
        .complete, path: content.path, bytes: copy.size, copy: copy.path,
        url: content.entry.urls.first.map { Log.redacted(url: $0) })
    }
  }

  /// Stored bytes of a resource made room. Called on a thread that may wait for the disk.
  func evicted(_ key: ResourceKey, bytes: Int64) {
    counters.add(1, to: .evictions)
    counters.add(UInt64(clamping: bytes), to: .evictedBytes)
    happenings.post {
      do throws(StoreError) {
        return try store.tree.entries(of: key).first.map { Happening(.evicted, path: $0.path, bytes: bytes) }
      } catch {
        Log.warning("the path of what was evicted cannot be looked up: \(error.message)")
        return nil
      }
    }
  }
}

extension MediaFileSystem {
  /// Tells `listener` what happens from now on.
  package func tell(_ listener: any HappeningListener) { room.happenings.tell(listener) }

  /// Something happened that the reading room does not see.
  package func happened(_ happening: Happening) { room.happenings.post { happening } }
}
