import Base
import Manifest

/// One name in the tree.
package struct Node: Sendable, Equatable {
  /// What a node is.
  package enum Kind: Sendable, Equatable {
    /// A directory.
    case folder
    /// A file.
    case file
  }

  /// The entry's id: its directory cookie, never changing.
  package var entry: Int64
  /// The inode of its current generation.
  package var inode: Inode
  /// The directory it lies in (the root's is the root).
  package var parent: Inode
  /// Folder or file.
  package var kind: Kind
  /// Its listed name.
  package var name: String
  /// The resource's key (zero for a folder).
  package var key: ResourceKey
  /// Bytes, when known; nil while it is not (or for a body without a length).
  package var size: Int64?
  /// Last-Modified in seconds since 1970 of the known generation; nil otherwise.
  package var modified: Int64?
}

/// What is known of one generation of a resource.
package struct GenerationRecord: Sendable, Equatable {
  /// What became of it.
  package enum State: Int, Sendable {
    /// Some of it is stored (or nothing yet).
    case partial = 0
    /// All of it is in the library.
    case complete = 1
    /// A newer one took its place; kept for handles that are still open.
    case superseded = 2
  }

  /// Its id: names its partial file; never reused.
  package var id: Int64
  /// Whose it is.
  package var key: ResourceKey
  /// What the origin said.
  package var validators: Validators
  /// Bytes; nil when the origin does not tell.
  package var size: Int64?
  /// Content-Type, when sent.
  package var mediaType: String?
  /// What became of it.
  package var state: State
  /// Which bytes are stored, as far as the catalog may be believed.
  package var stored: ByteRangeSet
  /// Those of them that were synced to disk: what a power loss leaves.
  package var synced: ByteRangeSet
  /// Whether the continuation is to go on (also at the next mount).
  package var continues: Bool
  /// Where its completed copy is, when it is complete.
  package var copy: LibraryCopy?

  /// A new generation, with nothing stored.
  package init(id: Int64, key: ResourceKey, validators: Validators, size: Int64?, mediaType: String?) {
    self.id = id
    self.key = key
    self.validators = validators
    self.size = size
    self.mediaType = mediaType
    state = .partial
    stored = ByteRangeSet()
    synced = ByteRangeSet()
    continues = false
  }
}

/// A completed copy in the library, and how it looked when it was placed: a difference means that a user modified it.
package struct LibraryCopy: Sendable, Equatable {
  /// Its path below the library's folder.
  package var path: String
  /// Bytes.
  package var size: Int64
  /// st_mtim in nanoseconds.
  package var modified: Int64
  /// st_ctim in nanoseconds.
  package var changed: Int64
  /// st_dev.
  package var device: UInt64
  /// st_ino.
  package var inode: UInt64

  /// A copy that looks like that.
  package init(path: String, size: Int64, modified: Int64, changed: Int64, device: UInt64, inode: UInt64) {
    self.path = path
    self.size = size
    self.modified = modified
    self.changed = changed
    self.device = device
    self.inode = inode
  }
}

/// What the manifest says of one entry, as the catalog keeps it.
package struct EntryRecord: Sendable {
  /// Its node.
  package var node: Node
  /// Its path in the mount, `/`-separated, without a leading slash.
  package var path: String
  /// Its line in the manifest, with everything on it.
  package var source: ManifestEntry
}
