/// One change of the tree under a mount, after the list changed.
package enum TreeChange: Sendable, Equatable {
  /// `name` is in the folder `parent` from now on.
  case added(parent: Inode, name: String, isFolder: Bool)
  /// `name` is no longer in the folder `parent`.
  case removed(parent: Inode, name: String, isFolder: Bool)
  /// The file `name` in the folder `parent` is another one from now on, with an inode of its own, or is shown with
  /// another size or date.
  case replaced(parent: Inode, name: String)
}
