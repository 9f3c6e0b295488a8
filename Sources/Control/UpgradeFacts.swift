/// A program's file, as stat(2) tells it from others.
package struct ProgramFile: Codable, Sendable, Equatable {
  /// The number of its filesystem.
  package var device: UInt64
  /// Its number there.
  package var inode: UInt64

  package init(device: UInt64, inode: UInt64) {
    self.device = device
    self.inode = inode
  }
}

/// What of a live mount another program must share to go on with it.
package struct ServerFormats: Codable, Sendable, Equatable {
  /// The version of the mount helper's protocol.
  package var helper: UInt32
  /// The version of the session memory's layout.
  package var memory: UInt32
  /// The store's format.
  package var store: Int64

  package init(helper: UInt32, memory: UInt32, store: Int64) {
    self.helper = helper
    self.memory = memory
    self.store = store
  }

  /// Why a program with these formats cannot go on with a mount of `other`; nil if it can. It raises an older store.
  package func objection(to other: ServerFormats) -> String? {
    let what: (String, old: Int64, new: Int64)
    if other.helper != helper {
      what = ("the mount helper's protocol", Int64(other.helper), Int64(helper))
    } else if other.memory != memory {
      what = ("the memory of the mount", Int64(other.memory), Int64(memory))
    } else if other.store > store {
      what = ("the store's format", other.store, store)
    } else {
      return nil
    }
    let (name, old, new) = what
    return "the running server has version \(old) of \(name), and this program \(new): that takes an "
      + "unmount, and a mount by the new program"
  }
}

/// What a server tells for an upgrade, beside its identity.
package struct UpgradeFacts: Codable, Sendable, Equatable {
  /// The formats that another program must share.
  package var formats: ServerFormats
  /// The file that it runs; nil if /proc does not tell.
  package var program: ProgramFile?
  /// Whether it serves already: the helper does not go back to the old program any more.
  package var serves: Bool
  /// Why the mount's last upgrade failed; nil if it did not.
  package var failure: String?

  package init(formats: ServerFormats, program: ProgramFile?, serves: Bool, failure: String? = nil) {
    self.formats = formats
    self.program = program
    self.serves = serves
    self.failure = failure
  }
}
