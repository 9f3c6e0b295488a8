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

  /// Why a program with these formats cannot go on with a mount of `other`; nil if it can.
  package func objection(to other: ServerFormats) -> String? {
    let pairs = [
      ("the mount helper's protocol", UInt64(other.helper), UInt64(helper)),
      ("the mount's memory", UInt64(other.memory), UInt64(memory)),
      ("the store", UInt64(clamping: other.store), UInt64(clamping: store)),
    ]
    guard let (what, old, new) = pairs.first(where: { $0.1 != $0.2 }) else { return nil }
    return "the running server has version \(old) of the format of \(what), and this program \(new): that takes an "
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
