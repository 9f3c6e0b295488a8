/// An inode number: the catalog's id of one generation of one entry. Never reused; 1 is the root.
public typealias Inode = UInt64

/// The root directory of a mount.
public let rootInode: Inode = 1
