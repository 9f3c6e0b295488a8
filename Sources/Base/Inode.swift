/// An inode number: the catalog's id of one generation of one entry. Never reused; 1 is the root.
package typealias Inode = UInt64

/// The root directory of a mount.
package let rootInode: Inode = 1
