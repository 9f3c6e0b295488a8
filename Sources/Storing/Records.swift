import Base
import Manifest

/// One name in the tree.
package struct Node: Sendable, Equatable {
  /// The kind of a node.
  package enum Kind: Sendable, Equatable {
    /// A directory.
    case folder
    /// A file.
    case file
  }

  /// The entry's id: its directory cookie, which never changes.
  package var entry: Int64
  /// The inode of its current generation.
  package var inode: Inode
  /// The folder that contains it (the root contains itself).
  package var parent: Inode
  /// Folder or file.
  package var kind: Kind
  /// Its listed name.
  package var name: String
  /// The resource's key (zero for a folder).
  package var key: ResourceKey
  /// Its size in bytes; nil while unknown, or for a body without a length.
  package var size: Int64?
  /// Last-Modified of the known generation, in seconds since 1970; nil if there is none.
  package var modified: Int64?
  /// The size that the list gives, while the origin has said nothing; nil if it gives none.
  package var listedSize: Int64?
  /// The date that the list gives, in seconds since 1970, while the origin has said nothing; nil if it gives none.
  package var listedDate: Int64?
}

/// What is known of one generation of a resource.
package struct GenerationRecord: Sendable, Equatable {
  /// The state of a generation.
  package enum State: Int, Sendable {
    /// Some of it is stored (or nothing yet).
    case partial = 0
    /// All of it is in the library.
    case complete = 1
    /// A newer one replaced it; it stays for handles that are still open.
    case superseded = 2
  }

  /// Its id, which names its partial file and is never reused.
  package var id: Int64
  /// Its resource.
  package var key: ResourceKey
  /// The validators that the origin sent.
  package var validators: Validators
  /// Bytes; nil if the origin does not send the size.
  package var size: Int64?
  /// Content-Type, if the origin sent it.
  package var mediaType: String?
  /// Its state.
  package var state: State
  /// The bytes that are stored, as far as the catalog can be trusted.
  package var stored: ByteRangeSet
  /// Those of them that are synced to disk and so survive a power loss.
  package var synced: ByteRangeSet
  /// Whether its background download continues, also at the next mount.
  package var continues: Bool
  /// Whether a program has had it open, or a copy of it was placed in the library.
  package var isUsed = false
  /// The key of the URL whose answers it describes, for a resource that has several; nil: nobody knows.
  package var mirror: ResourceKey?
  /// Whether bytes of another URL may be stored as its own, and its checksum was not compared yet.
  package var isMixed = false
  /// Its copy, if it is complete.
  package var copy: LibraryCopy?

  /// A new generation, of which nothing is stored.
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

/// A completed copy in the library, with its attributes from when mediafs placed it. A difference means that a user
/// modified it.
package struct LibraryCopy: Sendable, Equatable {
  /// Its path relative to the library's folder.
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

  /// A copy with these attributes.
  package init(path: String, size: Int64, modified: Int64, changed: Int64, device: UInt64, inode: UInt64) {
    self.path = path
    self.size = size
    self.modified = modified
    self.changed = changed
    self.device = device
    self.inode = inode
  }
}

/// What the manifest says of one entry, as the catalog stores it.
package struct EntryRecord: Sendable {
  /// Its node.
  package var node: Node
  /// Its path in the mount, `/`-separated, without a leading slash.
  package var path: String
  /// Its line of the manifest, with everything on it.
  package var source: ManifestEntry
  /// Whether the list has its resource, under this name or another one.
  package var isListed = true
}
