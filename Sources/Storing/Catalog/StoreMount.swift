import Base
import CSystem
import Glibc

/// The mount that a store lies in: what distinguishes it from a later one at the same place.
package struct StoreMount: Sendable {
  /// A name that no other mount has in this run of the machine.
  package let name: String
  /// What a process is to hold, as the name says nothing without that; nil where it says something by itself, or where
  /// a process holds the mount already.
  package let hold: Hold?

  /// The mount of the store at `path`, which is absolute and without symbolic links. `held`: what a process has held
  /// since an earlier server of the store, if one does.
  package init(of path: String, held: Hold?) throws(Errno) {
    if let name = Self.kernelsName(of: path) {
      self.name = name
      hold = nil
      return
    }
    let folder = FileDescriptor(owning: try retrying { csystem_open_place(path) })
    if let held, held.isMount(of: folder) {
      name = held.text
      hold = nil
    } else {
      let number = UInt64.random(in: .min ... .max)
      let new = Hold(name: number, folder: folder)
      name = new.text
      hold = new
    }
  }

  /// The kernel's name for the mount of `folder`; nil before Linux 6.8, which has no number that only one mount has.
  static func kernelsName(of folder: String) -> String? {
    let number = csystem_unique_mount_id(folder)
    return number == 0 ? nil : "\(number)"
  }

  /// A mount that is held by an open descriptor: as long as it is, no other mount has the same number.
  package final class Hold: Sendable {
    /// Any number that nothing else held has.
    package let name: UInt64
    /// The store's folder (O_PATH).
    package let folder: FileDescriptor

    package init(name: UInt64, folder: consuming FileDescriptor) {
      self.name = name
      self.folder = folder
    }

    fileprivate var text: String { "held \(name)" }

    fileprivate func isMount(of other: borrowing FileDescriptor) -> Bool {
      let number = csystem_mount_id(folder.rawValue)
      return number != 0 && number == csystem_mount_id(other.rawValue)
    }
  }
}
