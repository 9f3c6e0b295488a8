import Base

/// Which files the kernel may open, after stat has shown a size that the list gives.
///
/// The kernel keeps the size that it was shown. If that is too large, it fills what it reads behind the real end with
/// zeros; if it is too small, some programs stop there. So an open of such a file is answered with ESTALE until the
/// kernel has got the origin's size: it looks the name up, and opens the file again.
///
/// Some opens look no name up (`/proc/self/fd`, a file handle): when no look came between two, the second one reads
/// past the kernel's cache, which asks for no size.
struct ListedSizes: Sendable {
  /// How an open is answered.
  enum Verdict: Equatable {
    case open, stale, direct
  }

  /// The most files of each set. Beyond them all are forgotten, which costs each of them an ESTALE and a look.
  private static let most = 16_384
  /// What stands for sizes of former lists.
  private static let former: Int64 = -1

  /// The size that the list gives each of the files in memory.
  private var listed: [Inode: Int64] = [:]
  /// Files for which the kernel has got the origin's size.
  private var seen: Set<Inode> = []
  /// Files whose open was answered with ESTALE, and that the kernel has not looked at since.
  private var refused: Set<Inode> = []

  /// A file was loaded. `size`: what the list gives; nil: nothing.
  mutating func loaded(_ inode: Inode, size: Int64?) {
    if let size, listed[inode] == nil { listed[inode] = size }
  }

  /// A file is in memory no more.
  mutating func left(_ inode: Inode) { if !listed.isEmpty { listed[inode] = nil } }

  /// The list gives it another size, or none, while the origin has said nothing.
  mutating func changed(_ inode: Inode, size: Int64?) {
    if listed[inode] != nil || size != nil { listed[inode] = Self.former }
    seen.remove(inode)
  }

  /// stat has shown the origin's size.
  mutating func showedOrigins(_ inode: Inode) {
    guard !listed.isEmpty || !refused.isEmpty else { return }
    if listed[inode] != nil || refused.contains(inode) {
      if seen.count >= Self.most { seen = [] }
      seen.insert(inode)
    }
    refused.remove(inode)
  }

  /// stat has shown the list's size.
  mutating func showedListed(_ inode: Inode, size: Int64) {
    seen.remove(inode)
    if let known = listed[inode], known != size { listed[inode] = Self.former }
  }

  /// How an open of the file is answered, whose size is known.
  mutating func opens(_ inode: Inode, size: Int64) -> Verdict {
    guard !listed.isEmpty, let known = listed[inode], known != size, !seen.contains(inode) else { return .open }
    if refused.count >= Self.most { refused = [] }
    return refused.insert(inode).inserted ? .stale : .direct
  }
}
